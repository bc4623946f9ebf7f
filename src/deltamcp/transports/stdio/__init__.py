"""Every dialect over one two-way connection: pipes, or the memory of one process."""
