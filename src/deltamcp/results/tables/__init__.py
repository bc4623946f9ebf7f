"""Writes rows as a text table, with a head for what all rows share and a line per row, and reads it. Pure."""
