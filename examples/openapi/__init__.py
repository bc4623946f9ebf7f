"""An example; its README has the commands."""
