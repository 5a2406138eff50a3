"""DMR++ documents of OPeNDAP: the description of a granule, with the places of its chunks."""
