"""The search for tools: by words and, where the server has an embedder, by meaning."""
