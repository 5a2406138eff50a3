"""Commit changes of an opened catalog, and remember what the next change needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gridref.api.readable import Sources
from gridref.catalog.commit import Access, Base, Change, Wanted, commit
from gridref.catalog.document import CatalogReport
from gridref.errors import CatalogConflictError, Place
from gridref.io import Allow
from gridref.model.scan_report import ScanReport

type Changed = tuple[Base, CatalogReport]
"""A catalog after a change, and the report of what was done."""


@dataclass(eq=False)
class Keeper:
    """Commits the changes of a catalog.

    Attributes
    ----------
    base
        The current snapshot as far as known: the next change begins with it.
    amends
        Id of a snapshot whose place the next change takes; None for none.
    is_fixed
        Whether the catalog was opened in a way that does not allow changes.
    """

    url: str
    storage_options: Mapping[str, Any] | None = None
    allow: Allow = None
    base: Base | None = field(default=None, repr=False)
    amends: str | None = None
    is_fixed: bool = False

    @cached_property
    def sources(self) -> Sources:
        """Reads labels and what files share; kept from change to change, as it remembers."""
        return Sources(self.storage_options)

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self.url, self.storage_options, self.allow, None, self.amends, self.is_fixed)
        return Keeper, own

    def updated(self, **changes: Any) -> Keeper:
        """The same with some attributes changed; it remembers what was read of the sources."""
        keeper = replace(self, **changes)
        keeper.sources = self.sources
        return keeper

    def commit(self, change: Callable[[Base], Wanted]) -> Base:
        """Commit what a change makes of the newest snapshot; return the snapshot as it is then."""

        def amending(base: Base) -> Wanted:
            if self.amends not in (None, base.root.snapshot.id):
                raise CatalogConflictError(
                    f"cannot amend snapshot {self.amends}: the last snapshot is now "
                    f"{base.root.snapshot.id}",
                    Place(source=self.url),
                )
            wanted = change(base)
            if self.amends is None or not isinstance(wanted, Change):
                return wanted
            if self.amends in base.root.tags.values():  # by somebody, in the meantime
                raise CatalogConflictError(
                    f"cannot amend snapshot {self.amends}: it is tagged by now",
                    Place(source=self.url),
                )
            return replace(wanted, amends=True)

        self.base = commit(self.access(), amending, self.base)
        return self.base

    def reported(self, report: ScanReport) -> Changed:
        """The snapshot as it is now, with the report of what was done."""
        base = self.base or self.commit(lambda _: None)
        return base, CatalogReport.of(report, base.root.snapshot.drifts)

    def access(self) -> Access:
        """How the catalog is reached."""
        return Access.of(self.url, self.storage_options, self.allow)
