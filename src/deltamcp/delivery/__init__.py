"""Delivers results to callers: whole, in parts that `continue` completes, or as changes since the last reply."""
