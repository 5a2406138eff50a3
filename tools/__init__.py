"""Programs that develop and check gridref; tests import what campaigns share with them."""
