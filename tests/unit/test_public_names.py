"""The public names: what is added or taken away is a decision, not an accident."""

from __future__ import annotations

import gridref


def test_public_names() -> None:
    assert sorted(gridref.__all__) == [
        "Combination",
        "CombineOptions",
        "GridrefStore",
        "Layout",
        "MosaicOptions",
        "ScanOptions",
        "Verification",
        "ViewOptions",
        "VirtualArray",
        "VirtualGroup",
        "__version__",
        "build",
        "concat",
        "errors",
        "explain",
        "mosaic",
        "open_catalog",
        "open_store",
        "open_virtual_dataset",
        "open_virtual_datatree",
        "open_virtual_mfdataset",
        "plan",
        "scan",
        "scan_many",
        "stack",
        "verify",
        "write_catalog",
    ]
    for name in gridref.__all__:
        assert getattr(gridref, name).__doc__


def test_errors_are_never_taken_for_a_missing_chunk() -> None:
    """Zarr readers fill in values for these, or let a KeyError pass for a missing key."""
    for name in gridref.errors.__all__:
        kind = getattr(gridref.errors, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert not issubclass(
                kind, KeyError | FileNotFoundError | IsADirectoryError | NotADirectoryError
            )
