"""Moves the servers of a host's configuration file behind the gateway, and back."""
