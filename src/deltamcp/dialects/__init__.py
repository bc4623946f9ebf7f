"""Messages to values and values to messages, one file an era. Pure: no I/O, no clock, no state."""
