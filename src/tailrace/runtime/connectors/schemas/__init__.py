"""Columns and their types: as declared, as found in rows, as agreed on by tasks."""
