"""What a GCF text or value can have wrong with it."""


class GcfError(ValueError):
    """A text that is not GCF, or a value GCF cannot carry. `category` is the specification's word for it."""

    def __init__(self, category: str, message: str, *, line: int = 0) -> None:
        where = f"line {line}: " if line else ""
        super().__init__(f"{where}{category}: {message}")
        self.category = category
        self.message = message
        self.line = line
