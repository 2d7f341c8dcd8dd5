"""Groupings: which downstream task gets a tuple."""
