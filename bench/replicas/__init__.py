"""Replicas behind nginx, of which one after the other is killed under load. Run `make replicas`."""
