"""``python -m gridref``: the command line."""

from gridref.faces.cli import main

main()
