"""JPEG 2000: JP2 files and codestreams. Entry point: `scanner.JPEG2000Scanner`."""
