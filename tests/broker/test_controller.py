"""Text files of controller mode: what the broker's own classes read from them, and when a real store does not start."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rmqtool.compare.metadata import StoreMetadata, epochs_agree
from rmqtool.formats.controller import EPOCHS, IDENTITY, identity_problem
from rmqtool.sides.controller import BACKUP, EpochFiles, read_epochs
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.toolchain import java_command
from tests.broker.versions import version_named
from tests.formats.epochs import epochs_text

PROGRAM = Path(__file__).parent / "programs" / "EpochCache.java"
VERSIONS = ("5.3.3", "5.5.0")
GOOD = epochs_text((1, 0), (2, 1000), (5, 4000))
BROKEN = {
    "letters": epochs_text(("x", 0), (2, 1000)),
    "empty": "",
    "one-line": "2\n",
}
"""Files with which a broker does not start."""


def asked(version: str, tmp_path: Path, folders: Iterable[object], what: int | str = -1) -> list[str]:
    command = java_command(version_named(version), str(PROGRAM), tmp_path)
    ran = subprocess.run([*command, str(what), *map(str, folders)], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def texts() -> list[tuple[str, str | None]]:
    """Files and backups: right ones, each damage, and random edits of both."""
    files = [
        GOOD,
        *BROKEN.values(),
        epochs_text((1, 0), crc=0),
        epochs_text((1, 0), crc=7),
        epochs_text((1, 0), count=2),
        epochs_text((2, 1000), (1, 0)),
        epochs_text(("1", "0-5"), (2, 7)),
        epochs_text((1, -5)),
        epochs_text(("+1", "0-"), crc=0),
        epochs_text((1 << 31, 0), crc=0),
        epochs_text((1, 0)).replace("\n", "\r\n"),
        epochs_text((1, 0), crc=0) + "\n\n",
        epochs_text((1, " 0")),
    ]
    chance = random.Random(19)
    for _ in range(60):
        at = chance.randrange(len(GOOD))
        files.append(GOOD[:at] + chance.choice(["", "7", "-", "\n", "x", " ", "\0"]) + GOOD[at + chance.randrange(3) :])
    return [(text, backup) for text in files for backup in (None, GOOD)]


def seen(files: EpochFiles) -> str:
    if files.why_not is not None:
        return "stops"
    return " ".join(f"{epoch}-{start}" for epoch, start in sorted(files.used.entries))


@pytest.mark.parametrize("version", VERSIONS)
def test_epochs_are_read_as_a_broker_reads_them(judge_of: Callable[[str], Judge], tmp_path: Path, version: str) -> None:
    del judge_of
    folders = []
    for number, (text, backup) in enumerate(texts()):
        folders.append(tmp_path / str(number))
        folders[-1].mkdir()
        (folders[-1] / EPOCHS).write_bytes(text.encode())
        if backup is not None:
            (folders[-1] / BACKUP).write_text(backup)
    answers = asked(version, tmp_path, folders)
    mine = [seen(read_epochs(open_directory(folder))) for folder in folders]
    assert [(text, a) for text, a in zip(texts(), mine, strict=True)] == list(zip(texts(), answers, strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_master_whose_log_ends_before_an_epoch_adds_none(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    del judge_of
    (tmp_path / EPOCHS).write_text(GOOD)
    assert asked(version, tmp_path, [tmp_path], 3999) == ["1-0 2-1000 5-4000 refused"]
    assert asked(version, tmp_path, [tmp_path], 4001) == ["1-0 2-1000 5-4000 added"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slave_truncates_where_diff_says(judge_of: Callable[[str], Judge], tmp_path: Path, version: str) -> None:
    del judge_of
    chance = random.Random(7)
    sides, arguments = [], []
    for number in range(200):
        starts = sorted(chance.choices(range(0, 9000, 1000), k=chance.randrange(1, 5)))
        entries = list(zip(sorted(chance.sample(range(1, 7), len(starts))), starts, strict=True))
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / EPOCHS).write_text(epochs_text(*entries))
        end = starts[-1] + chance.choice([-500, 0, 1, 700, 5000])
        metadata = StoreMetadata(config={(EPOCHS, "epochs", str(epoch)): str(start) for epoch, start in entries})
        sides.append((metadata, end))
        arguments += [folder, end]
    answers = asked(version, tmp_path, arguments, "agree")
    mine = [epochs_agree(a, b, a_end, b_end) for (a, a_end), (b, b_end) in zip(sides[::2], sides[1::2], strict=True)]
    agreed = [answer and answer["physical_offset"] for answer in mine]
    assert [-1 if offset is None else offset for offset in agreed] == [int(answer) for answer in answers]
    assert len({*agreed}) > 4
    assert None in agreed


@pytest.mark.parametrize("version", VERSIONS)
def test_the_identity_is_read_as_a_broker_reads_it(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    del judge_of
    contents = ["c#b#1", "c#b", "c#b#x", "", "c#b#1#2", "#b#1", "c##1", "c#b#", "c#b#1\n", "c#b#99999999999999999999"]
    folders = [tmp_path / str(number) for number in range(len(contents))]
    for folder, content in zip(folders, contents, strict=True):
        folder.mkdir()
        (folder / IDENTITY).write_text(content)
    answers = asked(version, tmp_path, folders)
    assert [answer == "broken" for answer in answers] == [
        identity_problem(content.encode()) is not None for content in contents
    ]


@pytest.mark.parametrize("name", ["good", *BROKEN])
def test_a_store_in_controller_mode_does_not_start_with_broken_epochs(
    judge_of: Callable[[str], Judge], tmp_path: Path, name: str
) -> None:
    (tmp_path / EPOCHS).write_text(BROKEN.get(name, GOOD))
    (tmp_path / BACKUP).write_text(GOOD)
    store = judge_of("5.5.0").open(tmp_path, {"broker.enableControllerMode": True})
    trouble = store.opened["startTrouble"]
    store.shutdown()
    assert (trouble is None) == (name == "good")
    assert name == "good" or "NumberFormatException" in trouble
