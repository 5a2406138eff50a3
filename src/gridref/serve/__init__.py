"""From a key or a selection to a plan (pure), and from a plan to bytes or elements."""
