"""A slice of the judge's cases: real brokers agree with rmqtool about damaged stores that nobody prepared."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.toolchain import require_tools
from tests.judge.bases import FILE, ROCKSDB, VERSIONS
from tests.judge.case import make_case
from tests.judge.check_forecast import check_forecast
from tests.judge.check_preflight import check_preflight, other_version
from tests.judge.intact import intact_records
from tests.judge.worker import Worker

pytestmark = pytest.mark.broker
SEED = 20
CASES = 6
QUEUES = (("T", 1), ("SCHEDULE_TOPIC_XXXX", 15))
"""Queues of the base of 5.5.0 in RocksDB that end before its last log file."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    require_tools()
    worker = Worker(tmp_path_factory.mktemp("judge"), None)
    yield worker
    worker.close()


@pytest.mark.parametrize(("version", "queues"), [*((version, FILE) for version in VERSIONS), ("5.3.3", ROCKSDB)])
def test_rmqtool_and_brokers_agree(worker: Worker, version: str, queues: str) -> None:
    outcomes = list(worker.cases(SEED, version, 0, list(range(CASES)), float("inf"), queues))
    assert len(outcomes) == CASES
    differing = {outcome.name: (outcome.faults, outcome.disagreements) for outcome in outcomes if outcome.disagreements}
    assert not differing


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preflight_of_a_base_agrees_with_the_other_broker(worker: Worker, tmp_path: Path, version: str) -> None:
    base = worker.base(SEED, version, 0)
    case = make_case(base, worker.judge_of(version), 0, tmp_path)
    check_preflight(case, worker.judge_of(other_version(base)))
    assert case.disagreements == []


def test_queues_in_rocksdb_are_read_though_no_record_leads_to_them(worker: Worker, tmp_path: Path) -> None:
    base = worker.base(SEED, "5.5.0", 0, ROCKSDB)
    case = make_case(base, worker.judge_of("5.5.0"), 0, tmp_path)
    *first, last = sorted((case.store / "commitlog").iterdir())
    for file in first:  # the walk over the log leaves out all of the file
        with file.open("r+b") as log:
            log.write(bytes(8))
    case.intact = intact_records(base, case.truth, case.store)
    begin = int(last.name)
    assert any(max(at for name, at in case.truth.served.items() if name[:2] == queue) < begin for queue in QUEUES)
    check_forecast(case)
    assert case.disagreements == []


def test_a_wrong_forecast_is_noticed(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = worker.base(SEED, "5.3.3", 0)
    assert worker.case(base, 0).disagreements == []
    monkeypatch.setattr("tests.judge.check_forecast.bounds_of", lambda *_: {})
    assert "A queues" in [row.signature for row in worker.case(base, 0).disagreements]
