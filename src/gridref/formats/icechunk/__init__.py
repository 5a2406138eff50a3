"""Icechunk repositories."""

import os

# Read once, when icechunk is imported: its warnings are about how it is used, which is our part.
os.environ.setdefault("ICECHUNK_LOG", "error")
