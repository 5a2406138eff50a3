"""Helpers for tests of gridref and of packages that build on it.

`gridref.testing.formats.ScannerTests` and `gridref.testing.codecs.CodecTests` are the suites that
a new format and a new codec must pass: subclass them in a test module, and run pytest.
`gridref.testing.strategies` draws virtual arrays, groups, grids, manifests, encodings and
selections for hypothesis; `gridref.testing.invariants` says what must be the same of two of them.
`gridref.testing.builders` makes virtual arrays out of numpy arrays, and
`gridref.testing.reference_reader` reads them the slow and obvious way.

Importing this package loads none of them. The suites need pytest and the strategies hypothesis:
``pip install gridref[test]``.
"""
