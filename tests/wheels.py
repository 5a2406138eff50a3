"""Small packages that are really built and installed, without a network."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

EntryPoints = Mapping[str, Mapping[str, str]]


def install(
    target: Path,
    name: str,
    files: Mapping[str, str],
    entry_points: EntryPoints,
    version: str = "1.0",
) -> Path:
    """Build a wheel and let pip install it into a folder."""
    wheel = write_wheel(target.parent, name, files, entry_points, version)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", "-q", *options, "--target", str(target)]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def unpack(
    target: Path,
    name: str,
    files: Mapping[str, str],
    entry_points: EntryPoints,
    version: str = "1.0",
) -> Path:
    """What `install` leaves, without pip, which takes seconds: a wheel of Python is an archive."""
    with zipfile.ZipFile(write_wheel(target.parent, name, files, entry_points, version)) as wheel:
        wheel.extractall(target)
    return target


def write_wheel(
    folder: Path, name: str, files: Mapping[str, str], entry_points: EntryPoints, version: str
) -> Path:
    """Write a wheel (PyPA specification "Binary distribution format")."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in members.items())
        for group, members in entry_points.items()
    ]
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join(groups),
    }
    lines = []
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in content.items():
            wheel.writestr(inner, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            lines.append(f"{inner},sha256={digest.decode().rstrip('=')},{len(text.encode())}")
        wheel.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]))
    return path


def run_python(
    arguments: list[str], *, paths: list[Path], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder where it finds what is installed in some others, too."""
    search = [str(path) for path in paths] + os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
