"""What the Containerfile runs: serves and is healthy on a filesystem that cannot be written to.

Images cannot be built here; its commands are run as it has them, but for folder and port.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import gridref
from tests.shared_data import ROOT

TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
READ_ONLY = ["unshare", "--mount", "bash", "-c", 'mount -o remount,bind,ro / && exec "$@"', "bash"]


def instruction(name: str) -> str:
    """The last instruction of a name: that of the image that is kept."""
    return re.findall(rf"^{name} (.*)$", TEXT, re.MULTILINE)[-1]


def command_of(name: str) -> list[str]:
    """The command of an instruction, which is a list in JSON."""
    text = instruction(name)
    return json.loads(text[text.index("[") :])


def environment(temporary: Path) -> dict[str, str]:
    set_here = dict(word.split("=", 1) for word in instruction("ENV").split())
    moved = {key: value.replace("/tmp", str(temporary)) for key, value in set_here.items()}
    return {**os.environ, **moved, "PATH": PATH, "TMPDIR": str(temporary)}


@contextmanager
def serving(catalogs: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The image's server on a read-only filesystem; what is temporary lies in memory."""
    words = {"/catalogs": str(catalogs), "0.0.0.0": "127.0.0.1", "8000": str(port)}
    command = [words.get(word, word) for word in command_of("ENTRYPOINT")]
    command += ["--allow", str(ROOT / "sample_data")]
    temporary = Path("/dev/shm") / f"gridref-test-{port}"
    temporary.mkdir()
    process = subprocess.Popen([*READ_ONLY, *command], env=environment(temporary))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(temporary)


def is_healthy(port: int) -> bool:
    command = [word.replace("8000", str(port)) for word in command_of("HEALTHCHECK")]
    env = {**os.environ, "PATH": PATH}
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0


def can_remount() -> bool:
    if shutil.which("unshare") is None or not Path("/dev/shm").is_dir():
        return False
    return subprocess.run([*READ_ONLY, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_remount(), reason="needs the right to mount")
def test_it_serves_from_a_filesystem_that_is_read_only(tmp_path: Path) -> None:
    gridref.build(ROOT / "sample_data" / "daily_2023-01.nc", tmp_path / "cube.gridref")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert not is_healthy(port)
    with serving(tmp_path, port) as process:
        deadline = time.monotonic() + 120
        while not is_healthy(port) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.2)
        assert is_healthy(port)
        answer = httpx.get(f"http://127.0.0.1:{port}/cube/portable/tas/c/0/0/0")
        assert answer.status_code == 200
        assert len(answer.content) > 0
    assert not is_healthy(port)


def test_the_user_is_not_root() -> None:
    user, _, group = instruction("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
