"""Many files scanned: at once, kept, and what failed."""
