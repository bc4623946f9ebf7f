"""The servers that agents work with; each is started as `python -m bench.agents.servers.<name>`."""
