"""The pages of the dashboard: HTML written here, modules of JavaScript and styles beside it, and who may see them."""
