"""Catalogs that change: files appended, replaced, removed, declared."""
