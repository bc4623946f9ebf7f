"""How messages travel. A transport moves bytes; what they mean is read by the dialects."""
