"""The transports, stdio and HTTP, which receive and send messages as bytes; dialects read and write the messages."""
