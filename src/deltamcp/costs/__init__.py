"""What servers cost a model and their callers: counted from lists, asked of a host's servers, measured as a client."""
