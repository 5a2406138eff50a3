"""What is imported is declared, and what is declared is imported, in the extra where it belongs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tools.lowest_versions import NOT_FOR_USERS, lowest_versions

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

OURS = {*sys.stdlib_module_names, "_typeshed", "gridref", "tests", "tools", "benchmarks"}
distributions = cache(packages_distributions)
"""Packages by the modules that they install; a look at all that is installed, which takes long."""

UNIMPORTED = {
    "dask": "xarray makes chunked arrays with it; distributed schedules them",
    "fastparquet": "fsspec writes kerchunk's references in Parquet with it",
    "kerchunk": "the same",
    "httptools": "uvicorn's protocol, which `faces.http.server` extends, is made of it",
    "s3fs": "fsspec opens S3 with it",
    "uvloop": "uvicorn runs on it where it is installed",
}
"""Dependencies that no module imports, and who does."""


def names_of(requirements: list[str]) -> set[str]:
    """Names of packages in requirements, as indexes spell them."""
    return {normal(re.split(r"[\[;>=<!~ ]", line)[0]) for line in requirements}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PLAIN = names_of(PROJECT["dependencies"])
EXTRAS = {
    extra: names_of(lines) - {"gridref"}
    for extra, lines in PROJECT["optional-dependencies"].items()
}
FOR_USERS = PLAIN.union(*(EXTRAS[extra] for extra in EXTRAS if extra not in NOT_FOR_USERS))


@cache
def imported(folder: str) -> dict[str, set[str]]:
    """Packages that modules of a folder import, and the modules; those for annotations too."""
    found: dict[str, set[str]] = {}
    root = ROOT / folder
    for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [str(node.module)]
            for module in modules:
                top = module.partition(".")[0]
                if top in OURS:
                    continue
                owners = distributions().get(top, [top])  # several share the namespace of pystac
                owner = top if top in owners else owners[0]
                found.setdefault(normal(owner), set()).add(str(path.relative_to(ROOT)))
    return found


def test_what_src_imports_is_declared() -> None:
    for_users = PLAIN.union(*(EXTRAS[extra] for extra in EXTRAS if extra not in {"dev", "docs"}))
    # gcsfs and adlfs bring what signs for them; who reads from these clouds installs them.
    of_clouds = {"src/gridref/io/google_signing.py", "src/gridref/io/azure_signing.py"}
    undeclared = {
        name: at for name, at in imported("src").items() if name not in for_users and at - of_clouds
    }
    assert not undeclared


def test_only_test_helpers_import_what_tests_need() -> None:
    everything = PLAIN.union(*(EXTRAS[extra] for extra in EXTRAS if extra not in {"dev", "test"}))
    for name in EXTRAS["test"] - everything:
        for path in imported("src").get(name, ()):
            assert path.startswith("src/gridref/testing/"), (name, path)


def test_what_is_declared_for_users_is_imported() -> None:
    assert FOR_USERS - set(imported("src")) == set(UNIMPORTED)


def test_every_dependency_has_a_lower_bound() -> None:
    """`make test-minimum` installs these versions."""
    assert names_of(lowest_versions()) == FOR_USERS


def test_all_has_every_extra_for_users() -> None:
    (line,) = PROJECT["optional-dependencies"]["all"]
    assert set(line[len("gridref[") : -1].split(",")) == set(EXTRAS) - NOT_FOR_USERS


@pytest.mark.parametrize(
    "folder", ["formats/hdf5", "formats/tiff", "formats/zarr.py", "combine", "catalog", "serve"]
)
def test_what_is_built_does_not_depend_on_extras(folder: str) -> None:
    """Without pyproj, which was in an extra, tiles of two UTM zones were laid on one grid."""
    of_verify = {"src/gridref/formats/hdf5/original.py"}
    needed = {name for name, at in imported(f"src/gridref/{folder}").items() if at - of_verify}
    assert needed <= PLAIN
