"""Changed catalogs are refused, or change nothing: a few of the changes of `make attack`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridref
from gridref.errors import CatalogCorruptError, GridrefError
from gridref.faces.http.site import Site, SiteOptions
from tests.attack_doors import DOORS, told_at_a_door
from tools.fuzz.catalog_attack import ATTACKS, attack, make_catalog, sign
from tools.fuzz.member_attack import MemberAttack, make_catalogs
from tools.fuzz.reference_attack import attack_references, make_references


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_catalog(tmp_path_factory.mktemp("attacked"))


@pytest.mark.parametrize("kind", ATTACKS)
def test_changes_are_refused_or_change_nothing(catalog: Path, tmp_path: Path, kind: str) -> None:
    found = {seed: attack(catalog, kind, seed, tmp_path) for seed in range(25)}
    assert {seed: what for seed, what in found.items() if what is not None} == {}


def test_hostile_references_are_refused_or_read_what_is_allowed(tmp_path: Path) -> None:
    references = make_references(tmp_path)
    found = {seed: attack_references(references, tmp_path, seed) for seed in range(120)}
    assert {seed: what for seed, what in found.items() if what is not None} == {}


def test_what_members_were_renamed_to_break_is_refused(catalog: Path, tmp_path: Path) -> None:
    """Values changed where readers passed over members that they did not know."""
    for seed in (13, 298):
        assert attack(catalog, "members, signed anew", seed, tmp_path) is None


@pytest.mark.parametrize("door", DOORS)
def test_a_flipped_bit_in_a_codec_is_refused_by_every_door(tmp_path: Path, door: str) -> None:
    changed = make_catalog(tmp_path)
    root = changed / "gridref.json"
    assert b'"configuration"' in root.read_bytes()
    root.write_bytes(root.read_bytes().replace(b'"configuration"', b'"congiguration"'))
    with told_at_a_door(CatalogCorruptError):
        DOORS[door](changed, "a")


def test_deep_documents_are_damage(tmp_path: Path) -> None:
    root = make_catalog(tmp_path) / "gridref.json"
    root.write_text("[" * 200_000)
    with pytest.raises(CatalogCorruptError):
        gridref.open_catalog(root.parent)
    references = tmp_path / "deep.json"
    references.write_text('{"version": 1, "refs": {"a/.zarray": ' + "[" * 200_000)
    with pytest.raises(GridrefError, match=r"deep\.json"):
        gridref.scan(references)
    references.write_text('{"version": 1, "refs": {".zgroup": "\\ud800"}}')
    with pytest.raises(GridrefError, match=r"deep\.json"):
        gridref.scan(references)


def test_one_bad_catalog_does_not_keep_others_from_being_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        make_catalog(tmp_path / name).rename(tmp_path / f"{name}.gridref")
    site = Site([tmp_path], SiteOptions())
    before = dict(site.catalogs)
    (tmp_path / "one.gridref" / "gridref.json").write_text("[" * 200_000)
    root = tmp_path / "two.gridref" / "gridref.json"
    document = json.loads(root.read_text())
    document["snapshot"]["extra"]["new"] = 1
    sign(document)
    root.write_text(json.dumps(document))
    site.refresh()
    assert set(site.problems) == {"one"}
    assert site.catalogs["one"] is before["one"]
    assert site.catalogs["two"] is not before["two"]
    monkeypatch.setattr("gridref.faces.http.site.describe_source", _break)
    site.refresh()
    assert set(site.problems) == {"one", "two"}


def _break(*arguments: object) -> None:
    raise RecursionError("not an error of ours")


def _changed(catalog: Path, folder: Path, change: Callable[[Any], object]) -> Path:
    changed = shutil.copytree(catalog, folder / "changed.gridref")
    document = json.loads((changed / "gridref.json").read_text())
    change(document["snapshot"])
    sign(document)
    (changed / "gridref.json").write_text(json.dumps(document))
    return changed


@pytest.mark.parametrize("name", ["\0 0.nc", "\ud800.nc", "a\0b/0.nc"])
def test_addresses_that_are_none_are_errors_of_ours(tmp_path: Path, name: str) -> None:
    """Prefixes of addresses may be any text of JSON."""
    changed = _changed(
        make_catalog(tmp_path), tmp_path, lambda snapshot: snapshot.update(prefixes=[name])
    )
    for door in ("own reader", "engine", "portable"):
        with pytest.raises(GridrefError):
            DOORS[door](changed, "a")


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog that was appended to, with statistics, whose blocks are packed in several ways."""
    return make_catalogs(tmp_path_factory.mktemp("kinds"))[1]


def _unpacking(snapshot: Any) -> Any:
    return next(e for e in snapshot["encodings"] if "unpacking" in e)["unpacking"]


def _array(snapshot: Any) -> Any:
    return snapshot["root"]["arrays"]["packed"]


def _part(snapshot: Any) -> Any:
    return snapshot["parts"][0]


HOSTILE_MEMBERS: dict[str, Callable[[Any], object]] = {
    "factor": lambda d: _unpacking(d).update(scale="chunk-checksums"),
    "shift": lambda d: _unpacking(d).update(offset=[1, 2]),
    "fills": lambda d: _unpacking(d).update(fill_values=7),
    "fills of two": lambda d: _unpacking(d).update(fill_values={"$tuple": [[1, 2]]}),
    "arithmetic": lambda d: _unpacking(d).update(dtype="U1"),
    "dimensions": lambda d: _array(d)["dimension_names"].__setitem__(0, {"a": 1}),
    "axes": lambda d: _array(d).update(axes=[-1, 0]),
    "encodings": lambda d: _array(d).update(encodings=[10**6]),
    "no encodings": lambda d: _array(d).pop("encodings"),
    "elements": lambda d: [e.update(data_type="string") for e in d["encodings"]],
    "commits": lambda d: d.update(log=[]),
    "way up": lambda d: d.update(id="../../x"),
    "parents": lambda d: d["log"][0].update(parent="\0"),
    "recipe": lambda d: d.update(recipe={"labels": 1}),
    "no recipe": lambda d: d.update(recipe=[1]),
    "rows": lambda d: [_part(d)[n].update(n_rows=1) for n in ("chunks", "statistics")],
}


@pytest.mark.parametrize("member", HOSTILE_MEMBERS)
def test_members_of_other_kinds_are_refused(grown: Path, tmp_path: Path, member: str) -> None:
    """Wherever something is wrong, it ends in an error of ours: also in changing the catalog."""
    changed = _changed(grown, tmp_path, HOSTILE_MEMBERS[member])
    new_file = grown.parent / "new.nc"
    with pytest.raises(GridrefError):
        _use_all(changed, new_file)


def test_statistics_of_contradicting_blocks_are_refused(grown: Path, tmp_path: Path) -> None:
    """Blocks count into encodings that the description does not have."""

    def keep_one(snapshot: Any) -> None:
        encodings = snapshot["root"]["arrays"]["time"]["encodings"]
        assert len(encodings) > 1
        del encodings[1:]

    catalog = gridref.open_catalog(_changed(grown, tmp_path, keep_one))
    with pytest.raises(CatalogCorruptError, match="blocks-"):
        catalog.scan_values()


@pytest.mark.parametrize("level", ["x", None, [], 10**400])
def test_what_is_said_of_compressing_is_not_needed_for_reading(
    catalog: Path, tmp_path: Path, level: object
) -> None:
    expected = DOORS["engine"](catalog, "a")

    def state_level(snapshot: Any) -> None:
        for encoding in snapshot["encodings"]:
            for codec in encoding["codecs"]:
                if codec["name"] == "numcodecs.zlib":
                    codec["configuration"] = {"level": level}

    changed = _changed(catalog, tmp_path, state_level)
    assert (DOORS["engine"](changed, "a") == expected).all()


def test_extents_are_whole_numbers(grown: Path, tmp_path: Path) -> None:
    """Also where they equal one, like 2.0: xarray makes slices of them."""
    changed = _changed(
        grown,
        tmp_path,
        lambda snapshot: [axis.update(extent=float(axis["extent"])) for axis in snapshot["axes"]],
    )
    with pytest.raises(CatalogCorruptError, match="extent of an axis"):
        gridref.open_catalog(changed)


@pytest.mark.parametrize("end", [10**400, -(10**400), 2**64], ids=["high", "low", "65 bits"])
def test_labels_decide_where_those_at_the_ends_cannot_be(
    grown: Path, tmp_path: Path, end: int
) -> None:
    """What the description says of the ends only spares reading the labels."""
    changed = _changed(
        grown, tmp_path, lambda snapshot: snapshot["ends"]["time"].__setitem__(2, end)
    )
    same = shutil.copytree(grown, tmp_path / "same.gridref")
    days = np.datetime64("2000-01-01", "s") + np.arange(40) * np.timedelta64(1, "D")
    found, expected = (
        gridref.open_catalog(each).declare("time", days)["time"][...] for each in (changed, same)
    )
    assert found.tolist() == expected.tolist()


def _use_all(catalog: Path, new_file: Path) -> None:
    for name in ("packed", "text"):
        DOORS["own reader"](catalog, name)
        DOORS["engine"](catalog, name)
    gridref.open_catalog(catalog).diff(catalog)
    group = gridref.open_catalog(catalog)
    group.scan_values()
    group.tag("x")
    group.append(new_file)
    group.prune(keep=1, grace_seconds=0)


def test_catalogs_that_nobody_changed_can_be_used(grown: Path, tmp_path: Path) -> None:
    _use_all(shutil.copytree(grown, tmp_path / "same.gridref"), grown.parent / "new.nc")


def test_members_of_many_kinds_are_refused_or_read(tmp_path: Path) -> None:
    attack_members = MemberAttack(tmp_path / "members")
    found = {seed: attack_members(seed) for seed in range(80)}
    assert {seed: what for seed, what in found.items() if what is not None} == {}
