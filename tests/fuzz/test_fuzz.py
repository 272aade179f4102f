"""A short slice of both fuzzers in every run, the long run with the slow tests; see docs/development/fuzz.md."""

from __future__ import annotations

import pytest

from tests.fuzz import journals, records, salvaged_stores, whole_stores
from tests.fuzz.long_run import fuzz_journals, fuzz_records, fuzz_salvage, fuzz_stores, peak_memory_mib

MEMORY_MIB_MAX = 600
"""Growth of a whole part; the compiled reader alone takes 150."""


def test_records_a_short_slice() -> None:
    tally = fuzz_records(20_000, seed=0)
    assert len(tally.verdicts) >= 8, "the edits reach too few rules"


def test_whole_stores_a_short_slice() -> None:
    tally = fuzz_stores(500, seed=0)
    assert len(tally.findings) >= 30, "the edits cause too few findings"
    assert tally.on_disk


def test_salvage_of_whole_stores_a_short_slice() -> None:
    tally = fuzz_salvage(300, seed=0)
    assert tally.outcomes["mended"] > 150
    assert tally.outcomes["nothing to do"] > 20


def test_journals_a_short_slice() -> None:
    tally = fuzz_journals(500, seed=0)
    assert tally.inputs == 500
    assert tally.settled > 3, "too few journals are good enough to be rolled back"
    assert {"undo: exit 0", "undo: exit 4", "undo: exit 5"} <= tally.outcomes.keys()


def test_a_canary_that_is_touched_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer itself: a command that reads, or changes, what lies beside the store ends the run."""
    true_run = journals.run
    calls: list[int] = []

    def reading(*arguments: object) -> object:
        calls.append(1)
        if len(calls) > 40:
            (arguments[1].parent / "victim" / "manifest").read_bytes()  # type: ignore[attr-defined]
        return true_run(*arguments)

    monkeypatch.setattr(journals, "run", reading)
    with pytest.raises(AssertionError, match="victim/manifest"):
        fuzz_journals(100, seed=0)


@pytest.mark.parametrize("seed", [4_333_622_005_128, 4_329_327_037_442, 4_325_032_067_727])
def test_a_log_file_size_beyond_all_numbers_is_no_internal_error(seed: int) -> None:
    assert whole_stores.check_store(seed).inputs == 1


def test_a_store_in_which_heads_are_found_wrong_only_in_a_second_round() -> None:
    assert salvaged_stores.check_store(61_117).outcomes["mended"] == 1


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(30_069_066_040_426, id="part of a gap in a queue that is only named"),
        pytest.param(30_069_066_047_488, id="zeros inside the last properties"),
        pytest.param(30_073_361_007_542, id="a log file under a name inside the one before"),
        pytest.param(30_073_361_019_658, id="a queue file of an odd length"),
        pytest.param(30_077_655_976_626, id="a name that leaves a gap"),
        pytest.param(30_077_656_013_750, id="an index file with room for nothing"),
        pytest.param(30_081_950_957_261, id="a torn record that brokers serve"),
        pytest.param(30_245_159_708_152, id="a queue offset far ahead of a queue of small files"),
        pytest.param(30_081_950_959_069, id="a batch queue under a name that is no UTF-8"),
    ],
)
def test_a_store_that_once_failed(seed: int) -> None:
    assert salvaged_stores.check_store(seed).inputs == 1


def test_an_intact_record_that_is_given_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer itself: a plan that lets a record go ends the run."""
    true_content = salvaged_stores.content_of
    calls: list[int] = []

    def forgetful(*arguments: object) -> object:
        found = true_content(*arguments)  # type: ignore[arg-type]
        calls.append(1)
        if len(calls) % 2 == 0 and found.records:  # what is there afterwards
            found.records.popitem()
        return found

    monkeypatch.setattr(salvaged_stores, "content_of", forgetful)
    with pytest.raises(AssertionError, match="check_store"):
        fuzz_salvage(50, seed=0)


def test_a_lost_record_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer itself: a reader that overlooks what the other sees ends the run."""
    true_scan = records.scan

    def forgetful(log: object, reader: type, **options: object) -> object:
        found = true_scan(log, reader, **options)  # type: ignore[arg-type]
        if reader is records.CompiledReader:
            found.rows[10] = found.rows[10]._replace(queue_id=found.rows[10].queue_id + 1)
        return found

    monkeypatch.setattr(records, "scan", forgetful)
    with pytest.raises(AssertionError, match="readers differ: corpus 0, seed 0"):
        fuzz_records(1, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_records_ten_million(part: int) -> None:
    before = peak_memory_mib()
    assert fuzz_records(500_000, seed=1000 + 100 * part).inputs >= 500_000
    assert peak_memory_mib() - before < MEMORY_MIB_MAX


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_whole_stores_a_hundred_thousand(part: int) -> None:
    before = peak_memory_mib()
    assert fuzz_stores(10_000, seed=1000 + part).inputs == 10_000
    assert peak_memory_mib() - before < MEMORY_MIB_MAX


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_salvage_of_a_hundred_thousand_stores(part: int) -> None:
    before = peak_memory_mib()
    assert fuzz_salvage(10_000, seed=2000 + part).inputs == 10_000
    assert peak_memory_mib() - before < MEMORY_MIB_MAX


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_journals_a_hundred_thousand(part: int) -> None:
    before = peak_memory_mib()
    assert fuzz_journals(10_000, seed=3000 + part).inputs == 10_000
    assert peak_memory_mib() - before < MEMORY_MIB_MAX
