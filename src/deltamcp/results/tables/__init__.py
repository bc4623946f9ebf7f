"""Rows as text: a head that says once what all rows share, and a line for each row. Pure."""
