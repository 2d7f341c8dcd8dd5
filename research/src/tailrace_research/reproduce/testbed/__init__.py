"""What the papers measured on testbeds, measured on worker processes of this machine."""
