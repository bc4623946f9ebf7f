"""What calls and lists would have cost and did cost, by tool and day."""
