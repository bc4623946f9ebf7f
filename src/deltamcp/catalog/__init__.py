"""What can be called, read and filled in. Pure: nothing here runs an author's function."""
