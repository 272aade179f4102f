"""A shell's tab offers topics, versions, formats, recipes, damages and fields; it never fails and never speaks."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands import app
from rmqtool.commands.options import completion
from rmqtool.commands.options.help_groups import EVERY, OUTPUT, OWN, REPAIR, STORE
from rmqtool.report.writers import OutputFormat
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

PROGRAM = "import sys; sys.argv[0] = 'rmqtool'; from rmqtool.commands.app import main; main()"


@dataclass
class Context:
    """What a callback sees of a command line."""

    params: dict[str, Any]
    args: list[str] = field(default_factory=list)


def offered(*words: object) -> list[str]:
    """What bash would offer for the last word."""
    line = ["rmqtool", *map(str, words)]
    env = {
        **os.environ,
        "_RMQTOOL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert ran.stderr == ""
    assert "Traceback" not in ran.stdout
    return ran.stdout.split()


TEXT = "Keep a copy of a running broker{quote}s commit log, received through its replication port."
FISH = "mirror\t" + TEXT.format(quote="'")
ZSH = "_arguments '*: :((" + f'"mirror":"{TEXT}"'.format(quote="''") + "))'"


@pytest.mark.parametrize(("shell", "line"), [("fish", FISH), ("zsh", ZSH)])
def test_a_description_is_one_line(shell: str, line: str) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "rmqtool mirr", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    env = {**os.environ, **words, "_RMQTOOL_COMPLETE": f"complete_{shell}"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.stdout.splitlines(), ran.stderr) == ([line], "")


def test_topics_are_those_of_the_store(golden: Unpacked) -> None:
    store = golden("5.5.0-crashed")
    names = {path.name for path in (store / "consumequeue").iterdir()}
    assert set(offered("dump", store, "--topic", "")) == names
    assert offered("get", store, "--topic", "Ord") == ["OrderEvents"]
    assert offered("rebuild", store, "--topic", "Topic") == ["TopicTest"]


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["verify", "x", "--broker-version", "5.3"], {"5.3.1", "5.3.3"}),
        (["forecast", "x", "--broker-version", "a"], {"all"}),
        (["forecast", "x", "--from", "4.9"], {"4.9.7", "4.9.8"}),
        (["forecast", "x", "--to", "5.5"], {"5.5.0", "5.5.1"}),
        (["formats", "message-"], {"message-v1", "message-v2"}),
        (["fixture", "make", "cra"], {"crashed"}),
        (["fixture", "damage", "log-bit"], {"log-bit-flip-late"}),
        (["dump", "x", "--fields", "topic,store_t"], {"topic,store_timestamp_ms"}),
        (["info", "x", "--timezone", "Asia/Sh"], {"Asia/Shanghai"}),
        (["verify", "x", "--format", ""], {*OutputFormat}),
        (["info", "x", "--format", "j"], {"json", "jsonl"}),
    ],
)
def test_lists_of_ours_are_offered(words: list[str], some: set[str]) -> None:
    names = set(offered(*words))
    assert some <= names
    assert all(name.startswith(words[-1]) for name in names)


@pytest.mark.parametrize("store", ["/none", "s3://bucket/store", "file", "\x1b[2J"])
def test_where_nothing_can_be_looked_up_nothing_is_offered(store: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" if store == "file" else store

    assert completion.topics(Context({"store": path}), "") == []  # type: ignore[arg-type]
    assert completion.topics(None, "") == []  # type: ignore[arg-type]


def test_names_that_a_terminal_would_obey_are_not_offered(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "a\x1b[2J").mkdir(parents=True)
    (tmp_path / "consumequeue" / "good").mkdir()
    for number in range(completion.NAMES_MAX + 50):
        (tmp_path / "consumequeue" / f"many{number}").mkdir()

    names = completion.topics(Context({"stores": [str(tmp_path)]}), "")  # type: ignore[arg-type]
    assert len(names) == completion.NAMES_MAX
    assert all(name.isprintable() for name in names)


def test_the_help_groups_options() -> None:
    text = rmqtool("recover", "--help").out
    places = [text.index(f"\n{name}:\n") for name in ("Arguments", OWN, REPAIR, STORE, OUTPUT, EVERY)]
    assert places == sorted(places)
    starts = [
        text.index(f"\n  {option}") for option in ("--full", "--dry-run", "--commitlog", "--format", "-q, --quiet")
    ]
    assert sorted([*places[1:], *starts]) == [place for pair in zip(places[1:], starts, strict=True) for place in pair]


@pytest.mark.parametrize("name", [name for name in app.COMMANDS if name != "fixture"])
def test_options_that_commands_share_stand_in_a_group(name: str) -> None:
    for parameter in app.load(name).params:
        if {"--commitlog", "--broker-conf", "--format", "--master", "--quiet"} & set(parameter.opts):
            if name == "export" and parameter.name == "form":
                continue  # of the files that it writes
            assert getattr(parameter, "rich_help_panel", None) is not None, (name, parameter.opts)
