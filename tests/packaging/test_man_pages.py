"""Man pages and completion scripts: in the wheel, one for each command, and what groff and bash take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqtool.commands.command_list import COMMANDS
from tests.packaging.environments import run


@pytest.fixture(scope="module")
def share(slim: Path) -> Path:
    """Where the wheel puts them."""
    return slim.parent / "share"


def test_every_command_has_a_page_with_its_options(share: Path) -> None:
    pages = share / "man/man1"
    assert {f"rmqtool-{name}.1" for name in COMMANDS} | {"rmqtool.1"} <= {path.name for path in pages.iterdir()}
    text = (pages / "rmqtool-verify.1").read_text("utf-8")
    assert {"\\-\\-max\\-duration", "\\-\\-state"} <= set(re.findall(r"\\-\\-[a-z]+(?:\\-[a-z]+)*", text))
    assert re.search(r"^\.SH \"EXAMPLE\"\n\.nf\n\\&rmqtool verify ", text, re.MULTILINE)


@pytest.mark.skipif(not (shutil.which("groff") or os.environ.get("CI") == "true"), reason="groff is not installed")
def test_groff_has_nothing_to_say_of_the_pages(share: Path) -> None:
    pages = sorted(map(str, (share / "man/man1").glob("*.1")))
    ran = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-rLL=100n", *pages],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (ran.returncode, [line for line in ran.stderr.splitlines() if "cannot adjust line" not in line]) == (0, [])


@pytest.mark.parametrize(
    ("words", "answer"),
    [("rmqtool ver", "verify"), ("rmqtool verify --max-d", "--max-duration"), ("rmqtool fixture ma", "make")],
)
def test_bash_completes_by_the_script_that_is_installed(
    slim: Path, share: Path, tmp_path: Path, words: str, answer: str
) -> None:
    script = share / "bash-completion/completions/rmqtool"
    line = f"source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
    line += 'complete -p rmqtool >/dev/null && _rmqtool_completion rmqtool && printf "%s" "${COMPREPLY[*]}"'
    ran = run(["bash", "-c", line], tmp_path, PATH=f"{slim}:/usr/bin:/bin")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, answer, "")


@pytest.mark.parametrize("name", ["zsh/site-functions/_rmqtool", "fish/vendor_completions.d/rmqtool.fish"])
def test_other_shells_have_theirs(share: Path, name: str) -> None:
    assert "_RMQTOOL_COMPLETE=complete_" in (share / name).read_text("utf-8")
