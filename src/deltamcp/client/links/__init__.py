"""Links: the client's transports. A link carries messages to and from one server and does not interpret them."""
