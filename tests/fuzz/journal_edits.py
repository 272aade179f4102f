"""Edits of a store's journals and of plan files, from one changed field to links in place of whole directories."""

from __future__ import annotations

import copy
import json
import os
import random
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.campaign.trees import OWN, Node, Tree
from tests.fuzz.edits import edit_bytes

NUMBERS: Final = (-1, 0, 1, 2, 7, 255, 4096, 1 << 31, 1 << 62, 1 << 63, (1 << 64) + 1, 10**30, -(1 << 63), 0.5, 1e308,
                  float("nan"), float("inf"))  # fmt: skip
WORDS: Final = ("write", "replace", "create", "remove", "recover", "salvage", "", "x", "done", "undoing", "manifest")
SHAPES: Final[tuple[Any, ...]] = (None, True, False, [], {}, [[]], [None], {"x": {}}, "x", 0, [[[[[[0]]]]]], {"": 0})
VICTIMS: Final = ("", "staging", "undo/1", "undo/1/files/0", "files", "files/0", "0", "empty", "ranges", "commitlog",
                  "manifest", "abort", "pipe", "new/0", "absent", f"commitlog/{0:020d}")  # fmt: skip
"""What a path may lead to, in a canary's directory."""
OWN_TOP: Final = f"store/{OWN}"


@dataclass
class Edits:
    """An edited tree, and hard links that are made in it afterwards."""

    tree: Tree
    kinds: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    leads_away: bool = False
    """Whether a directory of the broker's is a link: people have those, so what it leads to may be read."""
    places: list[str] = field(default_factory=list)
    """Where links were put, for the text of a failure."""


def edit_tree(chosen: random.Random, state: Tree, folder: Path) -> Edits:
    """One edit of one field in half of the cases, else one to five of any kind."""
    edits = Edits(dict(state))
    if chosen.random() < 0.5:
        _edit_record(chosen, edits, folder, 1)
        return edits
    for _ in range(chosen.choice((1, 1, 2, 3, 5))):
        kinds = (_edit_record, _spread_path, _edit_record_bytes, _edit_node, _link, _hard_link, _own, _lose, _double)
        kind = chosen.choice(kinds)
        kind(chosen, edits, folder)
    return edits


def edit_plan(chosen: random.Random, plan: Path, folder: Path) -> Edits:
    """Change a saved plan, or what lies in its place."""
    edits = Edits({})
    roll = chosen.random()
    if roll < 0.7:
        document = json.loads(plan.read_bytes())
        for _ in range(chosen.choice((1, 1, 1, 3))):
            edits.kinds.append(_edit_value(chosen, document, folder))
        plan.write_text(_text(chosen, document), "utf-8", "surrogatepass")
    elif roll < 0.95:
        raw = bytearray(plan.read_bytes())
        edit_bytes(chosen, raw, 0, len(raw))
        plan.write_bytes(bytes(raw))
        edits.kinds.append("bytes of a plan")
    else:
        edits.kinds.append("nothing")
    return edits


def evil_path(chosen: random.Random, folder: Path) -> str:
    """A path that leads to a canary, to a device, to nothing or to what no repair may change."""
    victim = chosen.choice((folder / "victim", folder / "work" / "victim"))
    name = chosen.choice(VICTIMS)
    place = os.fspath(victim / name)
    start = chosen.choice(("store", f"store/{OWN}", f"store/{OWN}/undo", f"store/{OWN}/undo/1", "store/consumequeue",
                           "store/commitlog", f"store/{OWN}/undo/1/files", f"store/{OWN}/staging"))  # fmt: skip
    relative = os.path.relpath(place, folder / "work" / start)
    return chosen.choice((
        place, place, relative, relative, relative, f"./{relative}", f"consumequeue/../{relative}", f"{place}/",
        f"/{place}", f"files/../{relative}", f"x/../{relative}", "", ".", "..", "/", "//", "../..", "a\0b", "x" * 300,
        "y/" * 3000, OWN, f"{OWN}/undo", f"{OWN}/undo/1", "lock", "abort", "commitlog",
        "commitlog/rmqtool-repair-in-progress",
        "consumequeue", "/absent/a", "/absent/b", "/proc/self/mem", "/proc/self/cwd", "\ud800", "\udcff", "-x", "~",
        "commitlog/" + "0" * 20, "checkpoint", "config/topics.json", "files/0", "ranges", "new/0", "\n", "a\x1b[31m",
    ))  # fmt: skip


def _records(edits: Edits) -> list[str]:
    """Files of the tool's own directory that hold JSON."""
    return [path for path, node in edits.tree.items()
            if path.startswith(f"{OWN_TOP}/undo/") and node.is_file and node.content[:1] in (b"{", b"[")]  # fmt: skip


def _edit_record(chosen: random.Random, edits: Edits, folder: Path, count: int | None = None) -> None:
    records = _records(edits)
    if not records:
        _edit_node(chosen, edits, folder)
        return
    # The manifest says where everything is; the other records are small.
    path = max(records, key=lambda record: len(edits.tree[record].content)) if chosen.random() < 0.8 else ""
    path = path or chosen.choice(records)
    try:
        document = json.loads(edits.tree[path].content)
    except (ValueError, RecursionError):
        return
    for _ in range(count or chosen.choice((1, 2, 4))):
        edits.kinds.append(_edit_value(chosen, document, folder))
    edits.tree[path] = replace(edits.tree[path], content=_encoded(_text(chosen, document)))


def _edit_value(chosen: random.Random, document: Any, folder: Path) -> str:
    """Change one value somewhere in a document; what was done."""
    holders = list(_holders(document))
    if not holders:
        return "an empty record"
    holder, key = chosen.choice(holders)
    value = holder[key]
    roll = chosen.random()
    if roll < 0.12:
        return _restructure(chosen, holder, key, folder)
    if roll < 0.2:
        other, other_key = chosen.choice(holders)
        holder[key] = copy.deepcopy(other[other_key])
        return "a value of another field"
    if isinstance(value, str) or (value is None and roll < 0.7):
        holder[key] = evil_path(chosen, folder) if chosen.random() < 0.8 else chosen.choice(WORDS)
        return "a text"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and chosen.random() < 0.85:
        holder[key] = chosen.choice(NUMBERS) if chosen.random() < 0.7 else value + chosen.choice((-1, 1, 512))
        return "a number"
    holder[key] = copy.deepcopy(chosen.choice(SHAPES))
    return "another type"


def _restructure(chosen: random.Random, holder: Any, key: Any, folder: Path) -> str:
    """Take an entry out, double it, rename it, or add one of a path."""
    match chosen.randrange(4):
        case 0:
            del holder[key]
            return "an entry that is gone"
        case 1 if isinstance(holder, list):
            holder.insert(chosen.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
            return "an entry twice"
        case 2 if isinstance(holder, dict):
            holder[evil_path(chosen, folder) if chosen.random() < 0.7 else f"{key}x"] = holder.pop(key)
            return "another key"
        case _:
            path = evil_path(chosen, folder)
            if isinstance(holder, list):
                holder.append(path)
            else:
                holder[path] = copy.deepcopy(holder[key])
            return "a further entry"


def _spread_path(chosen: random.Random, edits: Edits, folder: Path) -> None:
    """The same field everywhere in a manifest, and every list of texts, lead to a canary: a crafted journal."""
    for path in _records(edits):
        try:
            document = json.loads(edits.tree[path].content)
        except (ValueError, RecursionError):
            continue
        names = sorted({key for holder, key in _holders(document) if isinstance(holder, dict)})
        name = chosen.choice(names) if names else ""
        evil = evil_path(chosen, folder)
        for holder, key in list(_holders(document)):
            if key == name and isinstance(holder[key], (str, type(None))):
                holder[key] = evil
            elif key == name and isinstance(holder[key], list) and all(isinstance(each, str) for each in holder[key]):
                holder[key].append(evil)
            elif key == name and isinstance(holder[key], dict):
                holder[key][evil] = copy.deepcopy(next(iter(holder[key].values()), [0, 0]))
        if chosen.random() < 0.5:  # a directory of the log, and a file in it
            above = os.path.dirname(evil)  # noqa: PTH120 - no path: it may hold anything
            for holder, key in list(_holders(document)):
                if key == "log_directories" and isinstance(holder[key], list):
                    holder[key].append(above)
                if key == "path" and chosen.random() < 0.5:
                    holder[key] = evil
        edits.tree[path] = replace(edits.tree[path], content=_encoded(_text(chosen, document)))
    edits.kinds.append("a field everywhere")


def _edit_record_bytes(chosen: random.Random, edits: Edits, folder: Path) -> None:
    del folder
    files = [path for path, node in edits.tree.items() if path.startswith(f"{OWN_TOP}/") and node.is_file]
    if not files:
        return
    path = chosen.choice(files)
    raw = bytearray(edits.tree[path].content)
    edit_bytes(chosen, raw, 0, len(raw))
    if chosen.random() < 0.2:
        raw[:] = chosen.choice((b"", b"[" * 100_000, b"null", b"0", b"{}", b'{"format":1}', b"\xff\xfe", b" " * 9000))
    edits.tree[path] = replace(edits.tree[path], content=bytes(raw))
    edits.kinds.append("bytes of a record")


def _edit_node(chosen: random.Random, edits: Edits, folder: Path) -> None:
    """A pipe, a directory or a file where something else was."""
    del folder
    path = _own_path(chosen, edits)
    if path is None:
        return
    old = edits.tree[path]
    _remove(edits.tree, path)
    kinds = ((stat.S_IFIFO | 0o600, b""), (stat.S_IFDIR | 0o755, b""), (stat.S_IFREG | 0o600, b"{}"))
    mode, content = chosen.choice((*kinds, (stat.S_IFREG | 0o600, b"")))
    edits.tree[path] = replace(old, mode=mode, content=content, inode=_new_inode(chosen))
    edits.kinds.append("something else in its place")


def _link(chosen: random.Random, edits: Edits, folder: Path) -> None:
    """A symbolic link in place of a file or directory, or below a queue's directory."""
    path = _own_path(chosen, edits)
    if chosen.random() < 0.2:
        inner = [other for other in edits.tree if other.count("/") >= 2 and other.startswith("store/consumequeue/")]
        edits.leads_away |= bool(inner)
        path = chosen.choice(inner) if inner else path
    if path is None:
        return
    old = edits.tree[path]
    _remove(edits.tree, path)
    victim = chosen.choice((folder / "victim", folder / "work" / "victim"))
    names = ("", "undo", "undo/1") if old.is_directory else ("manifest", "undo/1/manifest", "pipe", "0", "files/0")
    place = os.fspath(victim / chosen.choice(names))
    above = (folder / "work" / path).parent
    target = place if chosen.random() < 0.5 else os.path.relpath(place, above)
    edits.tree[path] = Node(stat.S_IFLNK | 0o777, old.owner, old.mtime_ns, _new_inode(chosen), os.fsencode(target))
    edits.kinds.append("a link")
    edits.places.append(f"{path} -> {target}")


def _hard_link(chosen: random.Random, edits: Edits, folder: Path) -> None:
    """A second name of a canary where a file was."""
    files = [path for path, node in edits.tree.items() if node.is_file and path.startswith("store/")
             and (path.startswith(OWN_TOP) or chosen.random() < 0.2)]  # fmt: skip
    if not files:
        return
    path = chosen.choice(files)
    victim = chosen.choice((folder / "victim", folder / "work" / "victim"))
    edits.links[path] = os.fspath(victim / chosen.choice(("0", "files/0", "manifest", "undo/1/manifest", "ranges")))
    edits.kinds.append("a hard link")
    edits.places.append(f"{path} = {edits.links[path]}")


def _own(chosen: random.Random, edits: Edits, folder: Path) -> None:
    """Another owner, or a mode that lets others write, or lets nobody read."""
    del folder
    path = _own_path(chosen, edits)
    if path is None:
        return
    node = edits.tree[path]
    owner = chosen.choice((node.owner, (12_345, 12_345), (65_534, 65_534)))
    mode = stat.S_IFMT(node.mode) | chosen.choice((0o777, 0o707, 0o000, 0o755, 0o4777, 0o100))
    edits.tree[path] = replace(node, owner=owner, mode=mode)
    edits.kinds.append("an owner or a mode")


def _lose(chosen: random.Random, edits: Edits, folder: Path) -> None:
    del folder
    path = _own_path(chosen, edits)
    if path is not None:
        _remove(edits.tree, path)
        edits.kinds.append("a missing part")


def _double(chosen: random.Random, edits: Edits, folder: Path) -> None:
    """A journal or a file under one more name, or under another one."""
    del folder
    path = _own_path(chosen, edits)
    if path is None or path == OWN_TOP:
        return
    name = chosen.choice(("2", "7", "01", "1.undone", "0", "9" * 30, "x", "-1", "manifest", "saved", "done", "undoing",
                          "ranges", "files", "staging", "undo", "1 ", "٣", "2.undone", "1.partial"))  # fmt: skip
    target = f"{path.rpartition('/')[0]}/{name}"
    if target == path or path.startswith(f"{target}/"):
        return
    moved = {target + other[len(path) :]: replace(node, inode=node.inode + (1 << 50) * (1 + chosen.randrange(1 << 10)))
             for other, node in edits.tree.items() if other == path or other.startswith(f"{path}/")}  # fmt: skip
    if chosen.random() < 0.5:
        _remove(edits.tree, path)
    _remove(edits.tree, target)
    edits.tree.update(moved)
    edits.kinds.append("another name")


def _own_path(chosen: random.Random, edits: Edits) -> str | None:
    paths = [path for path in edits.tree if path == OWN_TOP or path.startswith((f"{OWN_TOP}/", "kept/"))]
    return chosen.choice(paths) if paths else None


def _remove(tree: Tree, path: str) -> None:
    for other in [other for other in tree if other == path or other.startswith(f"{path}/")]:
        del tree[other]


def _new_inode(chosen: random.Random) -> int:
    return (1 << 60) + chosen.getrandbits(50)


def _holders(document: Any) -> Any:
    """Every (dictionary or list, key) of a document."""
    if isinstance(document, dict | list):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _holders(document[key])


def _text(chosen: random.Random, document: Any) -> str:
    return json.dumps(document, ensure_ascii=chosen.random() < 0.9)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
