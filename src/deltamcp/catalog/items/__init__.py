"""What can be called, read and asked for: operations, resources and prompts, and how authors' functions become them."""
