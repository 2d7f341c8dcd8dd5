"""Columns and their types: declared in a schema, inferred from rows, agreed on by all tasks."""
