"""The installed command in a process of its own, which need not import everything anew.

A new interpreter takes a second or two to import what most commands need, and the tests run
hundreds of them. So one process imports it once, and forks for each command: arguments, folder,
environment and standard streams are the caller's. Scripts that need the same can be run so, too.

``python tests/command.py SOCKET ARGUMENTS...`` is the command for a shell, see `shell_folder`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

# Those that go on until they are told to end get an interpreter of their own.
LASTING = {"serve", "watch"}
SCRIPT = "--script"
# What commands import sooner or later.
IMPORTS = (
    "gridref.faces.cli.app", "gridref.api.catalog", "gridref.api.each_chunk",
    "gridref.api.verify", "gridref.faces.cli.described", "gridref.faces.cli.tabular",
    "gridref.faces.exports.kerchunk", "gridref.faces.exports.stac", "gridref.faces.xarray.engine",
    "gridref.codecs.core", "gridref.formats.hdf5.groups", "gridref.formats.hdf5.original",
    "gridref.formats.built_in", "gridref.formats.tiff.structure",
    # xarray asks for these two when it meets an array that is not numpy's.
    "dask.array", "pint",
    "h5py", "kerchunk.xarray_backend", "netCDF4", "pandas", "pyarrow.compute", "pyarrow.parquet",
    "pyproj", "rioxarray", "tifffile", "typer._adapters", "xarray", "xpystac.xarray_plugin", "zarr",
)  # fmt: skip


def run_command(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run ``gridref`` with some arguments; what it writes comes back as text."""
    words = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in arguments]
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode())
        given.seek(0)
        streams = [stream.fileno() for stream in (given, out, err)]
        folder = os.fspath(cwd or os.getcwd())
        code = _ask(_server(), words, folder, dict(os.environ if env is None else env), streams)
        told = []
        for stream in (out, err):
            stream.seek(0)
            told.append(stream.read().decode())
    return subprocess.CompletedProcess(["gridref", *words], code, *told)


def run_script(
    script: str, *arguments: object, cwd: Path, env: Mapping[str, str], seconds: int
) -> subprocess.CompletedProcess[str]:
    """Run a Python script that may take some seconds; all that it writes is its output."""
    words = [SCRIPT, str(seconds), script, *map(str, arguments)]
    with tempfile.TemporaryFile() as out, open(os.devnull, "rb") as given:
        streams = [stream.fileno() for stream in (given, out, out)]
        code = _ask(_server(), words, os.fspath(cwd), dict(env), streams)
        out.seek(0)
        return subprocess.CompletedProcess(words[2:], code, out.read().decode())


def run_code(
    code: str, *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python code, for a minute at most, with the environment of this process and more."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "code.py")
        script.write_text(code)
        environment = {**os.environ, **(env or {})}
        return run_script(str(script), *arguments, cwd=Path.cwd(), env=environment, seconds=60)


@cache
def shell_folder() -> Path:
    """A folder to put first on the ``PATH`` of shells: its ``gridref`` is the command."""
    folder = Path(tempfile.mkdtemp(prefix="gridref-command-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "gridref"
    program = Path(sys.executable)
    lasting = "|".join(sorted(LASTING))
    script.write_text(
        "#!/bin/sh\n"
        f'case "$1" in {lasting}) exec "{program.with_name("gridref")}" "$@" ;; esac\n'
        f'exec "{program}" -IS "{__file__}" "{_server()}" "$@"\n'
    )
    script.chmod(0o755)
    return folder


@cache
def _server() -> str:
    """The socket of the process that forks; it ends with this one."""
    folder = tempfile.mkdtemp(prefix="gridref-command-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = f"{folder}/socket"
    here = os.fspath(Path(__file__).resolve())
    # The pipe is never written to: it ends with whoever holds it open.
    process = subprocess.Popen(
        # What forks is to have no threads: numpy's would wait for products of matrices.
        [sys.executable, "-W", "ignore::DeprecationWarning", here, "--serve", address],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(process.wait, 10)
    atexit.register(process.stdin.close)
    assert process.stdout.readline() == b"ready\n"
    return address


def _ask(
    address: str, words: Sequence[str], cwd: str, env: Mapping[str, str], streams: Sequence[int]
) -> int:
    """Have a command run, and give what it ended with."""
    content = json.dumps([list(words), cwd, dict(env)]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(content).to_bytes(8, "big")], list(streams))
        connection.sendall(content)
        return int(connection.makefile().read())


def _serve(address: str) -> None:
    """Fork for each command that is asked for, until standard input ends."""
    import importlib
    import selectors

    for name in IMPORTS:
        with suppress(ImportError):  # older versions have other modules, and import them later
            importlib.import_module(name)
    os.fsync = lambda descriptor: None  # see tests/conftest.py
    # Collecting what was imported, as each command does when it ends, would copy all its memory.
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as waiting:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        waiting.register(listener, selectors.EVENT_READ)
        waiting.register(sys.stdin, selectors.EVENT_READ)
        while not any(key.fileobj is sys.stdin for key, _ in waiting.select()):
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    waiting.close()
                    _answer(connection)
                    return


def _answer(connection: socket.socket) -> None:
    """Run the command in a child, and tell what it ended with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    content = connection.makefile("rb").read(int.from_bytes(size, "big"))
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    words, cwd, env = json.loads(content)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    if words[0] == SCRIPT:
        signal.alarm(int(words[1]))
        sys.argv = words[2:]
        _run_to_the_end(partial(runpy.run_path, sys.argv[0], run_name="__main__"))
        return
    sys.argv = ["gridref", *words]
    from gridref.faces.cli import main

    _run_to_the_end(main)


def _run_to_the_end(program: Callable[[], object]) -> None:
    """End as an interpreter does, without freeing all objects: that would copy what is shared."""
    code: object = 0
    try:
        program()
    except SystemExit as end:
        code = end.code or 0
    if isinstance(code, int):
        threading._shutdown()  # noqa: SLF001
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _serve(sys.argv[2])
    else:
        sys.exit(_ask(sys.argv[1], sys.argv[2:], os.getcwd(), os.environ, (0, 1, 2)))
