"""What metadata of strangers may not say, and errors of other packages that they lead to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gridref.errors import GridrefError, Place, SourceFormatError, UnsupportedFeatureError

__all__ = ["check_element_size", "refusing_damage"]

_MAX_ELEMENT_BYTES = 2**24


@contextmanager
def refusing_damage(url: str, what: str = "the metadata is damaged") -> Iterator[None]:
    """Make a `SourceFormatError` of any error that is not ours.

    Such metadata may be of any type, depth and size: what Python raises for them
    (`RecursionError`, `OverflowError`, `UnicodeEncodeError`, ...) says nothing about the file.
    """
    try:
        yield
    except GridrefError:
        raise
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"[:500]
        raise SourceFormatError(f"{what} ({shown})", Place(source=url)) from error


def check_element_size(dtype: np.dtype[Any]) -> None:
    """Refuse elements so large that few of them are more than there is memory for.

    Raises
    ------
    UnsupportedFeatureError
        Saying how large they are.
    """
    if dtype.itemsize > _MAX_ELEMENT_BYTES:
        raise UnsupportedFeatureError(
            f"elements of {dtype.itemsize} bytes, more than {_MAX_ELEMENT_BYTES}"
        )
