"""Texts about items for a model, and texts of others made safe to show."""
