"""Rules of drift: how inputs that differ become one.

`gridref.combine.level` applies them, in an order that has reasons.
"""
