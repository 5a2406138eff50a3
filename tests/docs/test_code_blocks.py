"""Every Python and shell block of README.md and docs/ runs.

A page runs in a process of its own, as a reader would run it, in a temporary folder that holds a
copy of ``sample_data/``. Blocks marked ``<!-- not run: reason -->`` show up as skipped tests. So do
pages that have blocks marked ``<!-- needs: curl -->`` where there is no curl.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import run_script, shell_folder
from tests.docs import code_blocks
from tests.docs.code_blocks import CodeBlock, find_blocks, shell_commands
from tests.programs import program
from tests.shared_data import ROOT

PAGES = [path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if path.exists()]
BLOCKS = {
    path.relative_to(ROOT).as_posix(): find_blocks(path.read_text(encoding="utf-8"))
    for path in PAGES
}
NOT_RUN = [
    pytest.param(block.not_run, id=f"{page}:{block.line}")
    for page, blocks in BLOCKS.items()
    for block in blocks
    if block.not_run is not None
]
# Raise it only for a block that something else runs, or that cannot run in a test at all.
MOST_NOT_RUN = 7


@pytest.mark.long(but=6)
@pytest.mark.parametrize(
    "page", [page for page, blocks in BLOCKS.items() if any(b.not_run is None for b in blocks)]
)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path):
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    env = {**os.environ, code_blocks.COMMAND_FOLDER: str(shell_folder())}
    done = run_script(code_blocks.__file__, ROOT / page, cwd=tmp_path, env=env, seconds=240)
    if done.returncode:
        pytest.fail(f"a block of {page} failed:\n{done.stdout}", pytrace=False)
    for name in {name for block in BLOCKS[page] for name in block.needs}:
        program(name)  # the blocks that need others did run


@pytest.mark.parametrize("reason", NOT_RUN)
def test_a_block_that_is_not_run_says_why(reason: str):
    assert reason
    pytest.skip(f"not run: {reason}")


def test_few_blocks_are_not_run():
    assert len(NOT_RUN) <= MOST_NOT_RUN, [parameter.id for parameter in NOT_RUN]


PAGE = """\
# A page

```python
a = 1
```

<!-- not run: it needs a network -->

```bash
curl example.org
```

1. In a list:

   ```console
   $ echo 1 \\
   > 2
   1 2
   ```

```json
{}
```

```python
print(1)
```

```
1
```

```
no output: a block of code is not right before it
```

<!-- not run: text in between -->
Text.

<!-- needs: curl nginx -->
~~~~python
```
~~~~
"""


def test_blocks_are_found_with_their_lines_and_markers():
    assert find_blocks(PAGE) == [
        CodeBlock("python", 4, "a = 1\n"),
        CodeBlock("bash", 10, "curl example.org\n", "it needs a network"),
        CodeBlock("console", 16, "$ echo 1 \\\n> 2\n1 2\n"),
        CodeBlock("python", 26, "print(1)\n", output="1\n"),
        CodeBlock("python", 42, "```\n", needs=("curl", "nginx")),
    ]


def test_only_the_commands_of_a_console_block_are_run():
    assert shell_commands(find_blocks(PAGE)[2]) == "echo 1 \\\n2\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\n", "line 1: the block never ends"),
        ("\n```pycon\n```", "line 2: a block of pycon"),
        ("```console\nls\n```", "line 2: a console block without a line"),
    ],
)
def test_what_cannot_be_run_is_an_error(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        list(map(shell_commands, find_blocks(text)))


COMMANDS = """\
```bash
mkdir folder
(cd folder && gridref info --help > ../help.txt)
test "$(gridref --version | cut -d ' ' -f 1)" = gridref
gridref info folder && exit 1 || test $? = 1
gridref no-such-command 2> told.txt || test $? = 2
gridref build sample_data/daily_2023-01.nc -o a.gridref
GRIDREF_ALLOW=nothing gridref list a.gridref sources --format csv > sources.csv
```
"""


NEEDS = """\
<!-- needs: cp -->
```bash
touch ran
```
<!-- needs: gridref-no-such-program -->
```bash
touch left-out
```
"""


def test_a_block_is_left_out_where_its_program_is_absent(tmp_path: Path):
    (tmp_path / "page.md").write_text(NEEDS)
    subprocess.run([sys.executable, code_blocks.__file__, "page.md"], cwd=tmp_path, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"page.md", "ran"}


def test_commands_of_pages_are_the_command(tmp_path: Path):
    (tmp_path / "page.md").write_text(COMMANDS)
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    command = [sys.executable, code_blocks.__file__, "page.md"]
    env = {**os.environ, code_blocks.COMMAND_FOLDER: str(shell_folder())}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "no catalog there" in done.stderr
    assert "no-such-command" in (tmp_path / "told.txt").read_text()
    assert "daily_2023-01.nc" in (tmp_path / "sources.csv").read_text()
    assert "gridref info" in (tmp_path / "help.txt").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "```python\na = 1\n```\n```python\nassert a == 2\n```",
        "```bash\nfalse\necho after\n```",
        "```bash\nfalse | true\n```",
        "```python\nprint(1)\n```\n```\n2\n```",
        "```bash\necho 1\n```\n\n```\n1 ... 2\n```",
        "```console\n$ gridref-no-such-program\n```",
    ],
)
def test_a_block_that_fails_fails_its_page(text: str, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(text)
    done = subprocess.run(
        [sys.executable, code_blocks.__file__, page],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode
