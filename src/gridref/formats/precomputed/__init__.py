"""Neuroglancer precomputed volumes: folders of chunk files or shards, in several scales."""
