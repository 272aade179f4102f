"""The log of other directories is taken from there, and of two files of one offset the well named one stays."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from rmqtool.store.directory import move_log, set_twins_aside
from rmqtool.store.file_kinds import FileKind, segment_name
from rmqtool.store.view import DirectoryView, Entry, EntryKind, UnreadPlace


def entry(path: str) -> Entry:
    return Entry(path, EntryKind.FILE)


def test_the_log_is_taken_from_the_directories_that_were_named(tmp_path: Path) -> None:
    (tmp_path / "disk/below").mkdir(parents=True)
    for name in (segment_name(0), "other", "rmqtool-repair-in-progress"):
        (tmp_path / "disk" / name).touch()
    kinds: dict[FileKind, list[Entry]] = defaultdict(list)
    kinds[FileKind.COMMITLOG].append(entry(f"commitlog/{segment_name(0)}"))
    problems: list[UnreadPlace] = []
    directories = move_log(DirectoryView(tmp_path), frozenset({"disk", "gone"}), kinds, problems)
    assert directories == ["disk/below"]
    assert problems == [UnreadPlace("gone", "no such directory")]
    paths = {kind: [each.path for each in entries] for kind, entries in kinds.items() if entries}
    assert paths == {
        FileKind.COMMITLOG: [f"disk/{segment_name(0)}"],
        FileKind.STRAY_COMMITLOG: ["disk/other"],
        FileKind.RMQTOOL: ["disk/rmqtool-repair-in-progress"],
        FileKind.UNKNOWN: [f"commitlog/{segment_name(0)}"],
    }


def test_of_files_of_one_offset_the_one_with_the_name_of_a_broker_stays() -> None:
    good, long = f"consumequeue/a/0/{segment_name(600)}", f"consumequeue/a/0/000{segment_name(600)}"
    elsewhere = f"consumequeue/a/1/000{segment_name(600)}"
    kinds: dict[FileKind, list[Entry]] = defaultdict(list)
    kinds[FileKind.CONSUMEQUEUE] = [entry(long), entry(good), entry(elsewhere)]
    set_twins_aside(kinds)
    assert [each.path for each in kinds[FileKind.CONSUMEQUEUE]] == [good, elsewhere]
    assert [each.path for each in kinds[FileKind.STRAY_QUEUE]] == [long]
