"""Attacks on servers and clients, measured against the rule of `docs/threat-model.md`. Run `make hostile`."""
