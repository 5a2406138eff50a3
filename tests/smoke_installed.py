"""The package that is tested is the installed one; ``tools/check-package`` runs this first."""

from pathlib import Path

import gridref
from tests.shared_data import ROOT


def test_the_installed_package_is_tested() -> None:
    found = Path(gridref.__file__).resolve()
    assert "site-packages" in found.parts
    assert ROOT / "src" not in found.parents
