"""Messages of a header, decoded wherever they really lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gridref.errors import ScanError
from gridref.formats.hdf5.format.object_header import HeaderMessage
from gridref.formats.hdf5.format.shared_messages import resolved
from gridref.formats.hdf5.format.superblock import Hdf5Bytes

__all__ = ["decoded_message"]


def decoded_message[T](
    file: Hdf5Bytes, messages: Iterable[HeaderMessage], kind: int, decode: Callable[[bytes], T]
) -> T | None:
    """What the first message of a kind says; None if there is none.

    Raises
    ------
    SourceFormatError, UnsupportedFeatureError
        What `decode` raises, with the message's place in the file.
    """
    for message in messages:
        if message.kind == kind:
            try:
                return decode(resolved(file, message).data)
            except ScanError as error:
                place = file.place(message.address, len(message.data))
                raise error.located(place) from error.__cause__
    return None
