"""Icechunk repositories."""
