"""What a user without an extra is told; tools/check-package tries the same without the packages."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from gridref.errors import MissingPackageError
from gridref.extras import missing_package

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = [
    (re.split(r"[\[;>=]", requirement)[0].strip(), extra)
    for extra, requirements in PROJECT["optional-dependencies"].items()
    for requirement in requirements
    if extra not in {"all", "dev", "docs", "test"}
]


@pytest.mark.parametrize(("package", "extra"), EXTRAS)
def test_names_the_extra_of_a_package(package: str, extra: str) -> None:
    error = missing_package("this", ModuleNotFoundError(f"No module named {package!r}"))
    assert str(error) == f"this needs {package}: pip install 'gridref[{extra}]'"


def test_submodules_and_the_words_of_fsspec_name_their_package() -> None:
    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module("duckdb.no_such_module")
    assert "gridref[sql]" in str(missing_package("asking", missing.value))
    said = missing_package("this", ImportError("Install fastparquet to write Parquet"))
    assert str(said) == "this needs fastparquet: pip install 'gridref[interchange]'"


def test_modules_are_written_otherwise_than_their_packages() -> None:
    error = missing_package(
        "this", ModuleNotFoundError("No module named 'obspec_utils'", name="obspec_utils")
    )
    assert str(error) == "this needs obspec-utils: pip install 'gridref[interchange]'"


def test_packages_in_no_extra_are_told_of_in_their_own_words() -> None:
    error = missing_package("reading gs://b/a.nc", ImportError("Please install gcsfs"))
    assert isinstance(error, MissingPackageError)
    assert str(error) == "reading gs://b/a.nc: Please install gcsfs"
