"""TLS for connections that leave a machine: the certificate of a run, and sockets whose bytes are encrypted."""
