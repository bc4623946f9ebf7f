"""The error that GCF functions raise."""


class GcfError(ValueError):
    """A text is not GCF, or GCF cannot carry a value. `category` is the specification's name of the error."""

    def __init__(self, category: str, message: str, *, line: int = 0) -> None:
        where = f"line {line}: " if line else ""
        super().__init__(f"{where}{category}: {message}")
        self.category = category
        self.message = message
        self.line = line
