"""A start that is not simulated is said, and nothing is OK beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqtool.commands.reading import forecast
from rmqtool.errors import UnsupportedError
from rmqtool.quantities import JAVA_LONG_MAX
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

STORE = "5.5.0-clean-basic"
ASKED = ["--broker-version", "4.9.7", "--format", "json"]


@pytest.mark.parametrize("directories", ["commitlog", "consumequeue/*/0"])
def test_no_version_is_simulated(golden_copy: Unpacked, directories: str) -> None:
    store = golden_copy(STORE)
    like = max(next(store.glob(directories)).iterdir())
    like.with_name(f"{JAVA_LONG_MAX:020}").write_bytes(like.read_bytes())  # its bytes have offsets beyond all
    ran = rmqtool("forecast", store, *ASKED)
    answer = json.loads(ran.out)
    assert (ran.code, answer["forecasts"]) == (4, [])
    assert answer["verdict"] == "not-fully-checked"
    assert "start of 4.9.7" in [files["path"] for files in answer["not_looked_at"]]
    assert answer["needs_decision"]


def test_one_of_two_versions_is_not_simulated(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate = forecast.forecast_store

    def refused(store: Any, rules: Any, *more: Any) -> Any:
        if rules.version == "4.4.0":
            raise UnsupportedError("not this one")
        return simulate(store, rules, *more)

    monkeypatch.setattr(forecast, "forecast_store", refused)
    ran = rmqtool("forecast", golden(STORE), "--broker-version", "all", "--format", "json")
    answer = json.loads(ran.out)
    assert len(answer["forecasts"]) > 1
    assert ran.code == 3
    assert "start of 4.4.0" in [files["path"] for files in answer["not_looked_at"]]
    ran = rmqtool("forecast", golden(STORE), "--from", "5.5.0", "--to", "4.4.0", "--format", "json")
    assert json.loads(ran.out)["verdict"] != "ok"
    assert ran.code != 0
