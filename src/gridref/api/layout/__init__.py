"""The layout of files: given by the caller, or found from the files."""
