"""Tasks: what runs bundles through the user's functions."""
