"""Enumerations: integers with names, as declared by HDF5 and netCDF4."""

from __future__ import annotations

from dataclasses import dataclass

from gridref.errors import InvalidRequestError

CF_FLAGS = ("flag_values", "flag_meanings")
"""Attributes that name integers (CF conventions, section 3.5)."""


@dataclass(frozen=True)
class Enumeration:
    """A named enumeration of the values of an array.

    Attributes
    ----------
    name
        Name of the type in its file.
    members
        Name and number of each member.
    own_flags
        Whether the file itself has the names as the CF attributes ``flag_values`` and
        ``flag_meanings``. Otherwise they are made from the members, for readers without
        enumerations.

    Raises
    ------
    InvalidRequestError
        If it has no name, or two members with one name.
    """

    name: str
    members: tuple[tuple[str, int], ...]
    own_flags: bool = False

    def __post_init__(self) -> None:
        names = [name for name, _ in self.members]
        if not self.name or len(set(names)) < len(names):
            raise InvalidRequestError(f"an enumeration {self.name!r} of the members {names}")
