"""Enumerations: integers that have names, as HDF5 and netCDF4 declare them."""

from __future__ import annotations

from dataclasses import dataclass

from gridref.errors import InvalidRequestError

__all__ = ["CF_FLAGS", "Enumeration"]

CF_FLAGS = ("flag_values", "flag_meanings")
"""Attributes that name integers (CF conventions, section 3.5)."""


@dataclass(frozen=True)
class Enumeration:
    """A named enumeration, which the elements of an array are members of.

    Attributes
    ----------
    name
        Name of the type in its file.
    members
        Name and number of each member.
    own_flags
        Whether the file itself says the names as the CF attributes ``flag_values`` and
        ``flag_meanings``. Else those of the array are made of the members, for readers that know no
        enumerations.

    Raises
    ------
    InvalidRequestError
        If it has no name, or two members of one name.
    """

    name: str
    members: tuple[tuple[str, int], ...]
    own_flags: bool = False

    def __post_init__(self) -> None:
        names = [name for name, _ in self.members]
        if not self.name or len(set(names)) < len(names):
            raise InvalidRequestError(f"an enumeration {self.name!r} of the members {names}")
