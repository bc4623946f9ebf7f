"""The format `operations.json`, in which authors define operations as data."""
