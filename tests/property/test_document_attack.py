"""Hostile documents and files after others: a short run of what ``make attack`` tries at length."""

from pathlib import Path

import h5py
import pytest

import gridref
from gridref.errors import UnsupportedFeatureError
from tools.fuzz.document_attack import document_attacks


@pytest.mark.parametrize(
    ("document", "tries"),
    [("listings", 80), ("aggregations", 25), ("plans", 80)],
)
def test_documents_of_strangers_are_read_or_refused(
    tmp_path: Path, document: str, tries: int
) -> None:
    attempt = document_attacks(tmp_path / "documents")[f"documents: {document}"]
    assert [broke for seed in range(tries) if (broke := attempt(seed))] == []


def test_billions_of_fragments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        value = file.create_dataset("v", (), "f8")
        value.attrs["aggregated_dimensions"] = "x"
        value.attrs["aggregated_data"] = "map: m unique_values: w"
        file.create_dataset("m", (1, 2**33), "i4", chunks=(1, 2**20), fillvalue=1)
        file["w"] = [1.0]
    with pytest.raises(UnsupportedFeatureError, match="8589934592 fragments, more than the limit"):
        gridref.scan(path)
