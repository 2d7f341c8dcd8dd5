"""Authenticated connections between processes, and the frames on them.

``event_loop`` and ``peers`` say what links need of the rest of a worker. ``link`` has both ends of a link;
``out_links`` and ``in_links`` keep those of a task; ``dialer`` and ``acceptor`` make connections; ``channels``
carry the bytes.
"""
