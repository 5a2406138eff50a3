"""``python -m gridref``: the command line."""

from gridref.adapters.cli import main

main()
