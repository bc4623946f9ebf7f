"""GCF's generic profile, which carries any JSON value: encoder, decoder, grouped tables, streams and the v1 dialect."""
