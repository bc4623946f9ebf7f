"""From what a function returned to what a client is shown. Pure."""
