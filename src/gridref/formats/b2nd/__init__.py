"""Blosc2 arrays (b2nd) as sources: chunks of blocks, in a file or in a folder of files."""
