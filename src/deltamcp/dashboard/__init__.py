"""What a person sees of gateways that run, and may do: one table of asks, reached by a socket and by pages."""
