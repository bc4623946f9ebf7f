"""The common prefix of two strings."""


def common_prefix_length(base: str, new: str) -> int:
    """Return how many characters both strings begin with."""
    low, high = 0, min(len(base), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if base.startswith(new[:middle]):
            low = middle
        else:
            high = middle - 1
    return low
