"""The interfaces of other tools, implemented with gridref: a script only changes its imports."""
