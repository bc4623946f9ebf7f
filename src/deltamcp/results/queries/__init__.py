"""What callers ask of results: fields, expressions and patterns."""
