"""What a caller is sent of a result: the whole, a part that can be read on from, or what changed."""
