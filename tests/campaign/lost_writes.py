"""A machine that loses its power: what was synced is there, of all else a random part.

While a command runs, each call's outcome is recorded: which names each directory has, what each file holds, and what
was synced when. At any moment the disk may hold, for each file, any mixture of the sectors that were synced and those
that were written since, and of the changes to names any that were not synced. From each such disk, undo must lead to
the original store and the same command to the repaired one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.campaign.calls import watched
from tests.campaign.cases import Case
from tests.campaign.guard import Guard
from tests.campaign.tally import Tally
from tests.campaign.trees import Node, Tree, capture, put_back

SECTOR = 512
Name = tuple[int, str]
"""A directory's inode and a name in it."""


@dataclass(frozen=True)
class Change:
    """Names that one call took away and gave, together or not at all."""

    gone: dict[Name, int]
    come: dict[Name, int]

    @property
    def directories(self) -> set[int]:
        return {folder for folder, _ in (*self.gone, *self.come)}


class Recorded:
    """All that a run did to a folder, call by call."""

    def __init__(self, folder: Path, work: Callable[[], object]) -> None:
        self._folder = folder
        first = capture(folder)
        self.root = first["."].inode
        self.names = [_names(first)]
        self.nodes = [{node.inode: node for node in first.values()}]
        self.calls = ["the start"]
        self.synced: list[tuple[int, int, Node]] = []
        """Number of the call, inode, and what was on the disk from then on; for a directory the call says its names."""
        with watched(folder, self._before, self._after):
            work()
        self._look("the end")

    def _before(self, call: str, path: str) -> None:
        self._look(f"{call} {os.path.relpath(path, self._folder)}")

    def _look(self, call: str) -> None:
        tree = capture(self._folder)
        self.names.append(_names(tree))
        # What was unlinked stays known: a crash may bring its name back.
        self.nodes.append({**self.nodes[-1], **{node.inode: node for node in tree.values()}})
        self.calls.append(call)

    def _after(self, call: str, path: str) -> None:
        if call not in ("fsync", "fdatasync"):
            return
        try:
            found = os.lstat(path)
        except FileNotFoundError:  # a file without a name: what it holds is seen once it has one
            inode = _unnamed_inode(path)
            if inode is not None:
                self.synced.append((len(self.calls), inode, _UNNAMED))
            return
        tree = {".": Node(found.st_mode, (found.st_uid, found.st_gid), found.st_mtime_ns, found.st_ino)}
        if not tree["."].is_directory:
            content = Path(path).read_bytes()
            tree["."] = replace(tree["."], content=content)
        self.synced.append((len(self.calls), found.st_ino, tree["."]))

    def after_power_loss(self, number: int, chosen: random.Random) -> Tree:
        """The folder as a machine may find it that lost its power in front of a call."""
        share = chosen.choice((0.0, 0.0, 0.5, 0.9, 1.0))
        names = self._names_left(number, chosen, share)
        nodes: dict[int, Node] = {}
        return _tree(names, self.root, lambda inode: nodes.setdefault(inode, self._node_left(inode, number, chosen)))

    def _names_left(self, number: int, chosen: random.Random, share: float) -> dict[Name, int]:
        """The first names, and the changes of them that came to the disk: all that were synced, and some others."""
        names = dict(self.names[0])
        keeps_order = chosen.random() < 0.5
        lost_one = False
        for at in range(1, number + 1):
            change = _changed(self.names[at - 1], self.names[at])
            if not change.come and not change.gone:
                continue
            is_synced = any(at <= when <= number and inode in change.directories for when, inode, _ in self.synced)
            is_kept = is_synced or (chosen.random() < share and not (keeps_order and lost_one))
            lost_one |= not is_kept
            if is_kept:
                _apply(names, change)
        return names

    def _node_left(self, inode: int, number: int, chosen: random.Random) -> Node:
        """What a file holds: of each sector either what was synced last or what was written since."""
        last = self.nodes[number][inode]
        synced = self.nodes[0].get(inode)
        for when, other, node in self.synced:
            if other == inode and when <= number:
                synced = self._first_seen(inode) if node is _UNNAMED else node
        if last.is_directory or (synced is not None and synced == last):
            return last
        if synced is None:
            synced = replace(last, content=b"")
        meta = chosen.choice((synced, last))
        size = len(chosen.choice((synced, last)).content)
        content = bytearray(size)
        share = chosen.choice((0.0, 0.3, 0.7))
        for at in range(0, size, SECTOR):
            source = last if chosen.random() < share else synced
            part = source.content[at : min(size, at + SECTOR)]
            content[at : at + len(part)] = part
        return replace(meta, content=bytes(content))

    def _first_seen(self, inode: int) -> Node:
        """A file that was synced before it had a name: what it held when it got one."""
        return next(nodes[inode] for nodes in self.nodes if inode in nodes)


_UNNAMED = Node(0, (0, 0), 0, 0)


def lose_power_everywhere(case: Case, folder: Path, seed: int, *, every: int = 1, times: int = 1) -> Tally:
    """In front of every so many calls of the repair and of its undo, so many times, lose what was not synced."""
    tally = Tally()
    guard = Guard(case, folder)
    for is_undo in (False, True):
        put_back(guard.repaired if is_undo else guard.original, folder)
        recorded = Recorded(folder, lambda: case.undo(folder) if is_undo else case.repair(folder))  # noqa: B023
        numbers = range(1 + seed % every, len(recorded.calls), every)
        for number in numbers:
            for time in range(times):
                chosen = random.Random(f"{seed} {number} {time} {is_undo}")
                state = recorded.after_power_loss(number, chosen)
                what = f"power lost in {'undo' if is_undo else case.command}"
                where = f"{case.name}, seed {seed}, time {time}, in front of {recorded.calls[number]} ({number})"
                wrong = guard.unguarded(state) + guard.not_undone(state) + guard.not_finished(state)
                tally.check(what, wrong, where)
    return tally


def _names(tree: Tree) -> dict[Name, int]:
    names: dict[Name, int] = {}
    for path, node in tree.items():
        if path != ".":
            above, _, name = path.rpartition("/")
            names[tree[above or "."].inode, name] = node.inode
    return names


def _changed(before: dict[Name, int], after: dict[Name, int]) -> Change:
    return Change(
        {name: inode for name, inode in before.items() if after.get(name) != inode},
        {name: inode for name, inode in after.items() if before.get(name) != inode},
    )


def _apply(names: dict[Name, int], change: Change) -> None:
    """Where an earlier change was lost that this one builds on, it is lost with it."""
    for name, inode in change.gone.items():
        holds_some = any(folder == inode for folder, _ in names)
        is_moved = inode in change.come.values()
        if names.get(name) == inode and (is_moved or not holds_some):
            del names[name]
    names.update(change.come)


def _tree(names: dict[Name, int], root: int, node_of: Callable[[int], Node]) -> Tree:
    """The tree of all names that a directory leads to."""
    inner: dict[int, list[tuple[str, int]]] = {}
    for (folder, name), inode in names.items():
        inner.setdefault(folder, []).append((name, inode))
    tree: Tree = {".": node_of(root)}
    waiting = [("", root)]
    while waiting:
        path, folder = waiting.pop()
        for name, inode in sorted(inner.get(folder, [])):
            place = f"{path}/{name}" if path else name
            tree[place] = node_of(inode)
            if tree[place].is_directory:
                waiting.append((place, inode))
    return tree


def _unnamed_inode(path: str) -> int | None:
    """The inode in the name that Linux gives a file without one: `/folder/#123 (deleted)`."""
    name = path.rpartition("/")[2].removesuffix(" (deleted)")
    return int(name[1:]) if name.startswith("#") and name[1:].isdecimal() else None
