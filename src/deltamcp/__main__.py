"""`python -m deltamcp`."""

from deltamcp.cli.main import main

main()
