"""Strategies, builders and oracles, for the tests of gridref and of what is built on it."""
