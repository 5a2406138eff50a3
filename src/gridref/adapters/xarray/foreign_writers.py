"""VirtualiZarr's accessor ``ds.vz`` knows its own virtual arrays only, and passes over ours.

Its writers turn whatever is not a ``ManifestArray`` into numpy arrays, and put these into the
references or the store that they write. Nothing of the call tells our arrays who asks, and Zarr
asks from a thread of its own: the stacks do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

from gridref.errors import InvalidRequestError

__all__ = ["refuse_foreign_writers", "shown_class"]

_ACCESSOR = "virtualizarr.accessor"
_WRITERS = ("virtualizarr.writers.kerchunk", "virtualizarr.writers.icechunk")


def refuse_foreign_writers() -> None:
    """Raise where one of them is at work.

    Raises
    ------
    InvalidRequestError
        Naming what writes references to virtual variables.
    """
    if any(name in sys.modules for name in _WRITERS) and any(map(_is_writer, _frames())):
        raise InvalidRequestError(
            "VirtualiZarr's accessor ds.vz knows its own arrays only, and would copy the values of"
            " this virtual variable into what it writes: write references with"
            " ds.gridref.to_kerchunk(path), or give ds.vz the arrays that it knows with"
            " gridref.to_virtualizarr(ds.gridref.to_group())"
        )


def shown_class(own: type, asking: FrameType) -> type:
    """What a virtual array says its class is, to the code that asks.

    ``ds.vz.rename_paths`` renames what is a ``ManifestArray``, and passes over all else unsaid:
    there a virtual array, which has the same method, says that it is one.
    """
    if asking.f_code.co_name == "rename_paths" and asking.f_globals["__name__"] == _ACCESSOR:
        return asking.f_globals["ManifestArray"]  # type: ignore[no-any-return]
    return own


def _is_writer(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in _WRITERS


def _frames() -> Iterator[FrameType]:
    """What all threads are doing."""
    for frame in sys._current_frames().values():  # noqa: SLF001 (it is documented)
        current: FrameType | None = frame
        while current is not None:
            yield current
            current = current.f_back
