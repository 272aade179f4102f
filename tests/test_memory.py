"""The memory budget: what follows from a limit, and which limit a container sets."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest

from rmqtool import memory
from rmqtool.errors import UsageError
from rmqtool.memory import STEP, WORK_LEAST, MemoryBudget, container_limit, keep_to, memory_budget, settle
from rmqtool.scan import compiled, log
from rmqtool.scan.walk import PlainReader

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _no_limit_afterwards() -> Iterator[None]:
    yield
    memory._CURRENT.budget = MemoryBudget()


def test_without_a_limit_everyone_has_the_default() -> None:
    assert MemoryBudget().share(48 * MIB, 8) == 48 * MIB
    assert MemoryBudget().threads(64, 60 * MIB) == 64


def test_a_limit_leaves_everyone_a_part_of_what_is_free() -> None:
    budget = MemoryBudget(160 * MIB, 60 * MIB)
    assert budget.free == 100 * MIB
    assert budget.share(48 * MIB, 4) == 25 * MIB
    assert budget.share(10 * MIB, 4) == 10 * MIB
    assert budget.threads(8, 25 * MIB) == 2
    assert budget.threads(8, 100 * MIB) == 1


def test_work_is_given_a_least_however_little_a_container_leaves() -> None:
    assert MemoryBudget(60 * MIB, 100 * MIB).free == WORK_LEAST


def test_too_low_a_limit_names_the_least_one_that_works() -> None:
    with pytest.raises(UsageError, match="--max-memory: the command needs at least") as error:
        keep_to(1, 64 * MIB)
    match = re.search(r"at least (\d+)M", str(error.value))
    assert match is not None
    keep_to(int(match[1]) * MIB, 64 * MIB)
    free = memory_budget().free
    assert free is not None
    assert free >= 64 * MIB - STEP


def test_what_is_held_when_work_begins_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LOADED_LATER", {})
    monkeypatch.setattr(memory, "held_bytes", lambda: 100 * MIB)
    keep_to(1024 * MIB)
    before = memory_budget().free
    monkeypatch.setattr(memory, "held_bytes", lambda: 700 * MIB)
    settle("this store")
    assert (before, memory_budget().free) == (924 * MIB, 324 * MIB)
    monkeypatch.setattr(memory, "held_bytes", lambda: 1000 * MIB)
    with pytest.raises(UsageError, match="this store needs at least 10"):
        settle("this store")


@pytest.mark.parametrize(
    ("line", "folder", "limit_name", "used_name"),
    [("0::/a/b", "", "memory.max", "anon"), ("4:cpu,memory:/a/b", "memory", "memory.limit_in_bytes", "total_rss")],
)
def test_a_container_leaves_what_its_strictest_group_leaves(
    line: str, folder: str, limit_name: str, used_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "groups"
    own.write_text(f"1:cpuset:/\n{line}\n")
    monkeypatch.setattr(memory, "CONTROL_GROUPS", own)
    monkeypatch.setattr(memory, "CONTROL_ROOT", tmp_path)
    monkeypatch.setattr(memory, "held_bytes", lambda: 10 * MIB)
    for name, limit in (("", "max"), ("a", str(512 * MIB)), ("a/b", str(1024 * MIB))):
        group = tmp_path / folder / name
        group.mkdir(exist_ok=True, parents=True)
        (group / limit_name).write_text(f"{limit}\n")
        (group / "memory.stat").write_text(f"file 5\n{used_name} {110 * MIB}\n")
    assert container_limit() == 412 * MIB
    (tmp_path / folder / "a" / limit_name).write_text(str(1 << 62))
    assert container_limit() == 924 * MIB
    keep_to(None)
    assert memory_budget().limit == 924 * MIB
    assert not memory_budget().is_chosen


def test_a_machine_without_control_groups_sets_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path / "none")
    assert container_limit() is None


def test_a_question_about_room_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_budget().has_room(1 << 60)
    monkeypatch.setattr(memory, "held_bytes", lambda: 0)
    monkeypatch.setattr(memory, "LOADED_LATER", {})
    keep_to(100 * MIB, least=60 * MIB)
    for _ in range(3):
        assert memory_budget().has_room(40 * MIB)
        assert not memory_budget().has_room(41 * MIB)
    memory.take(10 * MIB)
    assert not memory_budget().has_room(31 * MIB)


def test_where_numba_does_not_load_it_takes_nothing_of_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str = "") -> None:
        raise ImportError

    monkeypatch.setattr(memory, "held_bytes", lambda: 0)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(compiled, "load_kernel", absent)
    monkeypatch.setattr(compiled, "is_available", compiled.is_available.__wrapped__)
    keep_to(400 * MIB)
    before = memory_budget()
    for _ in range(3):
        assert isinstance(log.reader_for(1 << 40), PlainReader)
    assert memory_budget() == before
    keep_to(WORK_LEAST + 40 * MIB)
    assert not log.is_compiled_faster(1 << 40)


def test_threads_that_load_numba_at_once_take_its_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        @property
        def insert_topics(self) -> Kernel:
            return self

        def load(self) -> None:
            Event().wait(0.05)  # so that all of them are here at once, were they not kept apart
            monkeypatch.setitem(sys.modules, "numba", ModuleType("numba"))

    monkeypatch.setattr(memory, "held_bytes", lambda: 0)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(compiled, "load_kernel", Kernel)
    monkeypatch.setattr(compiled, "checksum_function", lambda: None)
    monkeypatch.setattr(compiled, "is_available", compiled.is_available.__wrapped__)
    keep_to(1000 * MIB)
    before = memory_budget().free
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: compiled.is_available(), range(4)))
    assert before - memory_budget().free in (compiled.LOADING_BYTES, compiled.COMPILING_BYTES)
