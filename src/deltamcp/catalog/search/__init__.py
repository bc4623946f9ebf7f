"""The search for tools, by words and, where there is an embedder, by meaning."""
