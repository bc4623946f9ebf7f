"""Sessions of the handshake era over HTTP: what one process has of them, and what replicas share."""
