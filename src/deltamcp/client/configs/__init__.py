"""The files in which hosts keep the servers they start."""
