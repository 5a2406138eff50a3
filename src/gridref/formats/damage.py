"""Damaged or hostile metadata, and the errors that it causes in other packages.

`refusing_damage` turns such errors into a `SourceFormatError`. `check_element_size` refuses
elements of absurd size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gridref.errors import GridrefError, Place, SourceFormatError, UnsupportedFeatureError
from gridref.limits import beyond, limits
from gridref.secrets import without_secrets


@contextmanager
def refusing_damage(url: str, what: str = "the metadata is damaged") -> Iterator[None]:
    """Turn any error that is not gridref's own into a `SourceFormatError`.

    Damaged metadata may be of any type, depth and size, and the errors that Python raises for it
    (`RecursionError`, `OverflowError`, `UnicodeEncodeError`, ...) do not describe the file.
    """
    try:
        yield
    except GridrefError:
        raise
    except Exception as error:
        shown = without_secrets(f"{type(error).__name__}: {error}")[:500]
        raise SourceFormatError(f"{what} ({shown})", Place(source=url)) from error


def check_element_size(dtype: np.dtype[Any]) -> None:
    """Refuse elements so large that a few of them exceed the memory."""
    if dtype.itemsize > limits().element_bytes:
        raise UnsupportedFeatureError(
            beyond("element_bytes", f"elements of {dtype.itemsize} bytes")
        )
