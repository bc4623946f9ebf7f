"""Films that workers render behind promises, and a client that may be stopped and started again."""
