"""Turns the return values of authors' functions into the results that clients receive. Pure: no clock, no I/O."""
