"""Tasks run bundles through the user's functions."""
