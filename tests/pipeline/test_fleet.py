"""A fleet of stores: each path is rows or a finding, and planning takes listings, few requests and small partitions."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from pyarrow import fs
from pyarrow.fs import FSSpecHandler

from benchmarks.logs import write_log
from rmqtool.errors import NotAStoreError, UnreadableError
from rmqtool.pipeline.enums import TableName
from rmqtool.pipeline.tables.fleet_findings import slice_checks
from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import in_mode, parts, read_part, table_of
from rmqtool.store.ranged_source import RangedSource
from tests.conftest import Unpacked
from tests.pipeline.tables.test_table import table_rows
from tests.remote.memory_file_system import put_store

FILE_SIZE = 1 << 20
SPARSE_FILE_SIZE = 1 << 30
SMALL_FILE_SIZE = 4096
PARTITION_BYTES_MAX = 1200


def fleet_in(folder: Path, golden: Unpacked) -> dict[str, str]:
    """Stores and what else a pattern matches: by name, the finding of its row, of a store none."""
    for name in ("5.5.0-clean-basic", "5.5.0-clean-single"):
        (folder / name).symlink_to(golden(name))
    (folder / "empty").mkdir()
    (folder / "other" / "documents").mkdir(parents=True)
    (folder / "file").write_text("no directory")
    (folder / "circle").symlink_to("circle")
    return {
        "5.5.0-clean-basic": "", "5.5.0-clean-single": "", "empty": "store.not-a-store",
        "other": "store.not-a-store", "file": "store.not-a-store", "circle": "store.unreadable",
    }  # fmt: skip


@pytest.mark.parametrize("table", list(TableName))
def test_each_path_that_a_pattern_matches_is_rows_or_a_finding(
    golden: Unpacked, tmp_path: Path, table: TableName
) -> None:
    expected = fleet_in(tmp_path, golden)
    rows = table_rows(tmp_path / "*", table=table.value)
    name = "id" if table is TableName.FINDINGS else "finding"
    unread = {Path(row["store"]).name: row[name] for row in rows if str(row[name]).startswith("store.")}
    assert unread == {path: finding for path, finding in expected.items() if finding}
    if table is not TableName.FINDINGS:  # sound stores have none
        assert {Path(row["store"]).name for row in rows} == expected.keys()


def test_braces_and_patterns_name_stores_here_and_elsewhere(golden: Unpacked, tmp_path: Path) -> None:
    names = ("5.5.0-clean-basic", "5.5.0-clean-single", "5.5.0-clean-empty")
    (tmp_path / "{a,b}").mkdir()
    for name in names:
        put_store(golden(name), f"fleet/{name}/store")
        (tmp_path / name).mkdir()
        (tmp_path / name / "store").symlink_to(golden(name))
        (tmp_path / "{a,b}" / name).symlink_to(golden(name))
    for root in ("memory://fleet", str(tmp_path)):
        for pattern, expected in (
            ("*/store", names),
            ("5.5.0-clean-[bs]*/store", names[:2]),
            ("5.5.0-clean-{single,{basic,none}}/store", names[:2]),
            ("{5.5.0-clean-single,5.5.0-clean-basic}/store", names[:2]),
            ("{5.5.0-clean-single,*basic}/st*", names[:2]),
        ):
            stores = SourceOptions.parse({"path": f"{root}/{pattern}"}).stores()
            assert {store.view.label.split("/")[-2] for store in stores} == set(expected), pattern
    assert len(SourceOptions.parse({"path": str(tmp_path / "{a,b}" / "*")}).stores()) == 3


def test_one_path_that_is_no_store_is_an_error(golden: Unpacked, tmp_path: Path) -> None:
    expected = fleet_in(tmp_path, golden)
    for name, error in (("empty", NotAStoreError), ("circle", UnreadableError)):
        with pytest.raises(error):
            table_rows(tmp_path / name)
    with pytest.raises(NotAStoreError):
        table_rows(tmp_path / "e*")
    several = json.dumps([str(tmp_path / name) for name in expected])
    rows = table_rows(tmp_path / "5.5.0-clean-basic", paths=several)
    assert {Path(row["store"]).name for row in rows} == expected.keys()


def test_a_log_that_cannot_be_listed_is_a_row(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    (path / "commitlog").rename(path / "moved")
    (path / "commitlog").symlink_to("commitlog")
    rows = table_rows(path)
    assert [(row["file"], row["finding"]) for row in rows] == [("commitlog", "store.unreadable")]


def test_a_mode_treats_what_is_no_store_as_damage(golden: Unpacked, tmp_path: Path) -> None:
    fleet_in(tmp_path, golden)
    table = table_of(SourceOptions.parse({"path": str(tmp_path / "*"), "columns": "store,size"}))
    batches = [batch for part in parts(table) for batch in read_part(table, part)]
    kept = [
        row["store"] for batch in in_mode(iter(batches), table.schema, "dropmalformed") for row in batch.to_pylist()
    ]
    assert {Path(store).name for store in kept} == {"5.5.0-clean-basic", "5.5.0-clean-single"}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The file of each range that is asked for elsewhere."""
    asked: list[str] = []
    get = RangedSource._get

    def counted(self: RangedSource, start: int, end: int) -> bytes:
        asked.append(self.name)
        return get(self, start, end)

    monkeypatch.setattr(RangedSource, "_get", counted)
    return asked


def log_elsewhere(tmp_path: Path, file_count: int) -> str:
    """A store of one log elsewhere, whose files hold three messages each; its URL."""
    path = tmp_path / f"log-{file_count}"
    write_log(path / "commitlog", file_count, FILE_SIZE, 100, records_per_file=3)
    for number in range(2):
        (path / "commitlog" / f"{(file_count + number) * FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    return put_store(path, path.name)


def test_a_plan_looks_into_the_last_files_only(tmp_path: Path, requests: list[str]) -> None:
    """Those behind the log's end are preallocated."""
    url = log_elsewhere(tmp_path, 12)
    table = table_of(SourceOptions.parse({"path": url}))
    planned = parts(table)
    assert requests == [f"commitlog/{number * FILE_SIZE:020d}" for number in (13, 12, 11)]
    assert len(planned) == 12
    requests.clear()
    rows = [row for part in planned for batch in read_part(table, part) for row in batch.to_pylist()]
    assert len([row for row in rows if row["type"] == "message"]) == 36
    # Its records, and the search for damage behind them; of the files behind the end all, since only that shows it.
    assert {requests.count(name) for name in set(requests) if name < f"commitlog/{11 * FILE_SIZE:020d}"} == {2}
    assert len(requests) <= 2 * 12 + 3 * 6
    requests.clear()
    assert len(parts(table_of(SourceOptions.parse({"path": url, "to_offset": "10"})))) == 1
    assert len(requests) == 3


def test_files_are_left_out_by_time_in_tasks(tmp_path: Path, requests: list[str]) -> None:
    url = log_elsewhere(tmp_path, 40)
    times = [row["store_timestamp_ms"] for row in table_rows(Path("/"), paths=url, path="") if row["type"] == "message"]
    assert len(times) == 120
    requests.clear()
    table = table_of(SourceOptions.parse({"path": url, "from_time_ms": str(times[5]), "to_time_ms": str(times[9])}))
    planned = parts(table)
    assert len(requests) == 3
    assert len(planned) == 33
    rows = [row for part in planned for batch in read_part(table, part) for row in batch.to_pylist()]
    assert [row["store_timestamp_ms"] for row in rows] == times[5:9]


def sizes_of(url: str) -> list[int]:
    return [len(pickle.dumps(part)) for part in parts(table_of(SourceOptions.parse({"path": url})))]


def test_a_partition_elsewhere_is_a_path_and_a_range(tmp_path: Path) -> None:
    """And what connects to the file system; of the listing it has its own file."""
    few, many = (sizes_of(log_elsewhere(tmp_path, file_count)) for file_count in (4, 64))
    assert (len(few), len(many)) == (4, 64)
    assert max(many[:-1]) <= max(few[:-1]) + 8  # longer numbers
    assert max(many[:-1]) <= PARTITION_BYTES_MAX


def sparse_fleet(folder: Path, store_count: int, file_count: int) -> str:
    """Stores of sparse files with one byte each; the pattern of all."""
    for store in range(store_count):
        log = folder / f"{store_count}" / f"broker-{store:05d}" / "store" / "commitlog"
        log.mkdir(parents=True)
        for number in range(file_count):
            with (log / f"{number * SPARSE_FILE_SIZE:020d}").open("wb") as file:
                file.write(b"x")
                file.truncate(SPARSE_FILE_SIZE)
    return str(folder / f"{store_count}" / "*" / "store")


def planned_figures(pattern: str) -> tuple[int, float, float]:
    """Partitions of whole files, and for each of them bytes of its pickle and of the planner's memory at most."""
    table = table_of(SourceOptions.parse({"path": pattern, "splits": "1"}))
    tracemalloc.start()
    planned = parts(table)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(planned), max(len(pickle.dumps(part)) for part in planned), peak / len(planned)


def assert_plans_grow_with_files(folder: Path, few: int, many: int, file_count: int) -> dict[str, Any]:
    figures = [planned_figures(sparse_fleet(folder, stores, file_count)) for stores in (few, many)]
    (first_count, first_bytes, first_memory), (count, size, memory) = figures
    assert (first_count, count) == (few * file_count, many * file_count)
    assert size <= first_bytes + 8 <= PARTITION_BYTES_MAX
    assert memory <= 1.25 * first_memory
    assert memory <= 8192  # of which a good part is the path of each file
    return {"partitions": count, "bytes": size, "memory": memory}


def test_plans_grow_with_the_files_of_a_fleet(tmp_path: Path) -> None:
    assert_plans_grow_with_files(tmp_path, 20, 60, 5)


@pytest.mark.slow
def test_two_thousand_stores_are_planned(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record_property("figure", assert_plans_grow_with_files(tmp_path, 500, 2_000, 5))


def checks_of(path: str, slice_bytes: int) -> list[int]:
    """Bytes of each task of a job that checks stores."""
    stores = parts(table_of(SourceOptions.parse({"path": path, "table": "findings"})))
    return [len(pickle.dumps(check)) for check in slice_checks(stores, slice_bytes)]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_only_one_task_of_a_store_gets_its_listing(tmp_path: Path, is_elsewhere: bool) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    for path, file_count in ((few, 8), (many, 32)):
        write_log(path / "commitlog", file_count, FILE_SIZE, 100_000)
    sizes = [
        checks_of(put_store(path, path.name) if is_elsewhere else str(path), FILE_SIZE // 2) for path in (few, many)
    ]
    assert [len(size) for size in sizes] == [8, 32]
    assert max(sizes[1][1:]) <= max(sizes[0][1:]) + 2 <= PARTITION_BYTES_MAX
    growth = (sizes[1][0] - sizes[0][0]) / (32 - 8)
    assert 0 < growth <= 400  # for each file of the listing


class Asked(FSSpecHandler):
    """What is asked of a file system, as requests of an object store: LIST, HEAD, GET."""

    requests: ClassVar[Counter[str]] = Counter()

    def get_file_info(self, paths: list[str]) -> Any:
        self.requests["HEAD"] += len(paths)
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self.requests["LIST"] += 1
        return super().get_file_info_selector(selector)

    def open_input_file(self, path: str) -> Any:
        self.requests["HEAD"] += 1
        return super().open_input_file(path)


def small_fleet(store_count: int, file_count: int) -> str:
    """Stores of files with some bytes each on a file system elsewhere; the pattern of all."""
    memory = fsspec.filesystem("memory")
    name = f"fleet-{store_count}-{file_count}"
    for store in range(store_count):
        for number in range(file_count):
            place = f"/{name}/broker-{store:05d}/store/commitlog/{number * SMALL_FILE_SIZE:020d}"
            memory.pipe_file(place, b"x".ljust(SMALL_FILE_SIZE, b"\0"))
    return f"memory://{name}/*/store"


def requests_of(store_count: int, file_count: int, ranges: list[str], *, reads: bool) -> dict[str, int]:
    """Requests to plan, and to read each partition."""
    url = small_fleet(store_count, file_count)
    Asked.requests.clear()
    ranges.clear()
    table = table_of(SourceOptions.parse({"path": url, "splits": "1", "columns": "physical_offset"}))
    planned = parts(table)
    assert len(planned) == store_count * file_count
    if reads:
        Asked.requests.clear()
        ranges.clear()
        for part in planned:
            for _ in read_part(table, part):
                pass
    return {**Asked.requests, "GET": len(ranges)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, requests: list[str]) -> list[str]:
    monkeypatch.setattr(fs, "FSSpecHandler", Asked)
    return requests


@pytest.mark.parametrize(("stores", "files"), [(4, 3), (4, 9), (12, 3), pytest.param(2_000, 5, marks=pytest.mark.slow)])
def test_requests_of_a_plan_grow_with_stores_not_with_files(asked: list[str], stores: int, files: int) -> None:
    """Of each store two listings, two questions whether it is there, and the first bytes of the last file."""
    requests = requests_of(stores, files, asked, reads=False)
    assert requests == {"LIST": 2 * stores + 1, "HEAD": 3 * stores, "GET": stores}


@pytest.mark.parametrize(("stores", "files"), [(2, 3), (2, 9), (6, 3)])
def test_requests_of_tasks_grow_with_files(asked: list[str], stores: int, files: int) -> None:
    requests = requests_of(stores, files, asked, reads=True)
    assert requests == {"HEAD": stores * files, "GET": stores * files}


@pytest.fixture(autouse=True)
def no_files_are_left_elsewhere() -> Any:
    yield
    fsspec.filesystem("memory").store.clear()
