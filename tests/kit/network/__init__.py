"""What tests of the network share.

- ``ports``: neighbouring ports that are free.
- ``relays``: somebody between two processes, who reads and adds.
- ``sniffing``: somebody who reads a whole network.
- ``boxed``: a driver on a cluster in a box, and what it says.
"""
