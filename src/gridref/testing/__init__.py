"""For the tests of gridref and of what is built on it.

`gridref.testing.formats.ScannerTests` and `gridref.testing.codecs.CodecTests` are the suites that
a new format and a new codec must pass: subclass them in a test module, and run pytest.
`gridref.testing.builders` makes virtual arrays out of numpy arrays, and
`gridref.testing.reference_reader` reads them the slow and obvious way.
"""
