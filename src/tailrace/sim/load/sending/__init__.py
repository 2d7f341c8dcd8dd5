"""Tasks that send over one uplink, on virtual time."""
