"""The documentation site: its pages are in `docs/`, and what it says of names is made from the code."""
