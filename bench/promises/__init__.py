"""What promises do under load, and what is left of them when processes are killed."""
