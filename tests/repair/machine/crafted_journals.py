"""Journals that nobody's repair wrote: what is in a store that was sent may ask for anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqtool.repair.machine.store_paths import StorePaths

Manifest = dict[str, Any]
Craft = Callable[[Manifest, Path], None]
ZERO_DIGEST = "sparse-sha256:" + "0" * 64


def victim_tree(folder: Path) -> Path:
    """A tree beside the store that nothing may change: files, directories that are empty, odd modes and old times."""
    victim = folder / "victim"
    kept = [f"log/{number}" for number in range(10)]  # as a journal calls what it keeps
    for name in ("precious", "staging/left", "undo/7/manifest", "log/00000000000000000000", *kept):
        file = victim / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"precious " + name.encode())
        file.chmod(0o640)
    (victim / "hollow").mkdir()
    for path in sorted(victim.rglob("*"), reverse=True):
        os.utime(path, ns=(10**18, 10**18))
    return victim


def craft(places: StorePaths, change: Craft, number: int = 1) -> None:
    """Change what the journal of a repair says, and leave everything else as the repair left it."""
    file = places.undo / str(number) / "manifest"
    manifest = json.loads(file.read_bytes())
    change(manifest, places.root.parent / "victim")
    file.write_text(json.dumps(manifest))


def reopened(places: StorePaths, number: int = 1) -> None:
    """Make a repair that is done one that was killed half-way: the next command rolls it back by itself."""
    (places.undo / str(number) / "undoing").write_bytes(b"{}")
    for fence in places.fences:
        fence.shown.write_text("a fence")


def of_path(manifest: Manifest, path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(file for file in manifest["files"] if file["path"] == path)
    return found


def _set(path: str, field: str, value: Any) -> Craft:
    def change(manifest: Manifest, victim: Path) -> None:
        of_path(manifest, path)[field] = value(victim) if callable(value) else value

    return change


def _top(field: str, value: Any) -> Craft:
    def change(manifest: Manifest, victim: Path) -> None:
        found = value(victim) if callable(value) else value
        if isinstance(manifest[field], list):
            manifest[field] = [*manifest[field], *found]
        else:
            manifest[field] = {**manifest[field], **found}

    return change


def _outer_file(action: str) -> Craft:
    """A file of a log that the journal says lies elsewhere, as the log of a store may."""

    def change(manifest: Manifest, victim: Path) -> None:
        metadata = {"size": 3, "mode": 0o6777, "user_id": 1, "group_id": 1, "atime_ns": 5, "mtime_ns": 5}
        manifest["log_directories"].append(str(victim))
        manifest["files"].append(
            {
                **of_path(manifest, "checkpoint"), "path": f"{victim}/precious", "action": action, "number": 77,
                "metadata": None if action == "create" else metadata, "staged": None, "is_moved": True, "ranges": [],
                "digest": ZERO_DIGEST,
            }
        )  # fmt: skip

    return change


CHECKPOINT = "checkpoint"
QUEUE = "consumequeue/TopicB/3/00000000000000000000"
LEADING_OUT: dict[str, Craft] = {
    "staged absolute": _set(CHECKPOINT, "staged", lambda victim: f"{victim}/precious"),
    "staged above": _set(CHECKPOINT, "staged", "../victim/precious"),
    "staged in the staging, and out of it": _set(CHECKPOINT, "staged", ".rmqtool/staging/../../../victim/precious"),
    "created file above": _set(QUEUE, "path", "../victim/precious"),
    "created file absolute": _set(QUEUE, "path", lambda victim: f"{victim}/precious"),
    "folder elsewhere": _set(CHECKPOINT, "folder", lambda victim: f"{victim}/undo/7"),
    "folders to be emptied": _top("folders", lambda victim: [f"{victim}/undo/7"]),
    "folders of this store's name": _top("folders", lambda victim: [f"{victim}/.rmqtool/undo/0123456789ab-1"]),
    "made directory above": _top("made_directories", ["../victim/hollow"]),
    "made directory absolute": _top("made_directories", lambda victim: [f"{victim}/hollow"]),
    "times above": _top("directory_times", {"../victim": [1, 1]}),
    "times absolute": _top("directory_times", lambda victim: {str(victim): [1, 1]}),
    "log elsewhere": _top("log_directories", lambda victim: [f"{victim}/log"]),
    "log above": _top("log_directories", ["../victim/log"]),
    "file to be overwritten": _outer_file("write"),
    "file to be replaced": _outer_file("replace"),
    "file to be removed": _outer_file("create"),
    "the journal itself": _set(QUEUE, "path", ".rmqtool/undo/1/manifest"),
    "the lock": _set(QUEUE, "path", "lock"),
    "one file twice": lambda manifest, _: manifest["files"].append(manifest["files"][0]),
}
"""Every one names something that a journal may not name."""
DAMAGED: dict[str, Craft] = {
    "a number that no time is": _set(CHECKPOINT, "metadata", {"size": 1, "mode": 1, "user_id": 1, "group_id": 1,
                                                             "atime_ns": 1 << 80, "mtime_ns": 1}),
    "an action that is none": _set(CHECKPOINT, "action", "chmod"),
    "a number that is text": _set(CHECKPOINT, "number", "../../x"),
    "a number below zero": _set(CHECKPOINT, "number", -1),
    "a mode that is none": _set(CHECKPOINT, "metadata", None),
    "no digest": _set(CHECKPOINT, "digest", None),
    "a digest of something else": _set(CHECKPOINT, "digest", ZERO_DIGEST),
    "a further field": _set(CHECKPOINT, "further", 1),
    "files that are a number": lambda manifest, _: manifest.update(files=5),
    "a kept file that is not there": _set(CHECKPOINT, "number", 4711),
    "a range behind the file": lambda manifest, _: of_path(manifest, LOG)["ranges"][0].update(
        file_position=1 << 62
    ),
    "a range behind what was saved": lambda manifest, _: of_path(manifest, LOG)["ranges"][0].update(
        saved_position=1 << 62
    ),
}  # fmt: skip
"""Every one cannot be carried out."""
LOG = "commitlog/00000000000000000000"
