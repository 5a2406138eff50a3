"""Rewrite arrays with other chunks: `plan` decides what to read together, `writer` writes."""
