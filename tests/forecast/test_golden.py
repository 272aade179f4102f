"""The forecast of every golden store is what real brokers then did: load, log end, files, queues, answers, losses."""

from __future__ import annotations

from collections import Counter

import pytest

from rmqtool.errors import UnsupportedError
from rmqtool.forecast.forecast import forecast_of, forecast_store
from tests.conftest import Unpacked
from tests.forecast.golden_forecasts import all_differences, broker_differences, short_differences, simulation_of
from tests.golden_stores import broker_manifest, broker_names, manifest, more_verdicts, names

LEAST = {
    "stores": 660,
    "short": 480,
    "queues": 6700,
    "edges": 40000,
    "pulls": 9000,
    "messages": 104000,
    "extensions": 1000,
    "batches": 100,
    "times": 43000,
    "keys": 167000,
    "lost": 4000,
    "keys missing": 5600,
    "keys repeated": 500,
}
"""What must have been compared in all, so that nothing falls out unnoticed."""

OTHERWISE = {
    "4.9.7-damage-flip-topic-byte": ["lost {'OsderEvents': 1}, not {}"],
    "5.5.0-damage-flip-topic-byte": ["lost {'OsderEvents': 1}, not {}"],
}
"""Differences with a reason. The topic has no checksum, so to the judge the record is an intact message of another one,
in whose queues it is not served; the one who made the damage knows better."""

_compared: Counter[str] = Counter()


@pytest.mark.parametrize("name", names())
def test_the_forecast_is_what_the_broker_did(golden: Unpacked, name: str) -> None:
    path = golden(name)
    wrong: list[str] = []
    for version in manifest(name).reads:
        found = all_differences(path, name, version, _compared)
        wrong += [f"{version}: {difference}" for difference in found if difference not in OTHERWISE.get(name, [])]
    for version, verdict in more_verdicts(name).items():
        _compared["short"] += 1
        wrong += [f"{version}: {difference}" for difference in short_differences(path, name, version, verdict)]
    assert wrong == []


def test_enough_was_compared(request: pytest.FixtureRequest) -> None:
    if len([item for item in request.session.items if item.name.startswith("test_the_forecast_is")]) < len(names()):
        pytest.skip("only some stores were compared in this run")
    assert {kind: count for kind, count in LEAST.items() if _compared[kind] < count} == {}, _compared


@pytest.mark.parametrize("name", broker_names())
def test_whole_brokers_did_what_is_forecast(golden: Unpacked, name: str) -> None:
    path = golden(name)
    if "dledger" in name:
        with pytest.raises(UnsupportedError, match="DLedger"):
            broker_differences(path, name)
        return
    assert broker_differences(path, name) == []
    assert broker_manifest(name)["served"]["started"] is not name.endswith("-leftover")


def test_a_second_forecast_says_the_same(golden: Unpacked) -> None:
    name = "4.9.7-damage-flip-body-middle-file-abort"
    forecasts = []
    for _ in range(2):
        with simulation_of(golden(name), name, "5.3.3") as simulation:
            simulation.run()
            forecasts.append(forecast_of(simulation))
    assert forecasts[0] == forecasts[1]
    assert forecasts[0] == forecast_store(simulation.store, simulation.rules, simulation.options)
