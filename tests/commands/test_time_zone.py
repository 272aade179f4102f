"""Screens and options use one time zone: the one that is asked for, else that of the environment."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from rmqtool.commands.app import run
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked


def test_every_screen_shows_times_in_the_zone_that_is_asked_for(golden: Unpacked) -> None:
    store = golden("5.5.0-clean-basic")
    row = json.loads(rmqtool("dump", store, "--limit", 1, "--format", "jsonl").out)
    stored = row["store_timestamp_ms"]
    utc, shanghai = "2026-11-21T18:20:26", "2026-11-22T02:20:26"
    commands: list[tuple[object, ...]] = [
        ("info", store),
        ("dump", store, "--limit", 1),
        ("dump", store, "--limit", 1, "--hex"),
        ("dump", store / "checkpoint"),
        ("get", store, "--topic", row["topic"], "--queue-id", row["queue_id"], "--queue-offset", row["queue_offset"]),
    ]
    for command in commands:
        for options, shown, suffix in (
            (["--timezone", "Asia/Shanghai"], shanghai, "+08:00"),
            (["--utc"], utc, "Z"),
        ):
            out = rmqtool(*command, *options).out
            assert shown[:13] in out, (command, options)
            assert suffix in out, (command, options)
            assert (utc if shown == shanghai else shanghai)[:13] not in out
    in_json = ("dump", store, "--limit", 1, "--format", "json", "--timezone", "Asia/Shanghai")
    assert json.loads(rmqtool(*in_json).out)[0]["store_timestamp_ms"] == stored
    # A time without a zone is one of the zone that is shown.
    at = ("get", store, "--topic", row["topic"], "--queue-id", row["queue_id"], "--format", "json", "--time")
    assert rmqtool(*at, f"{shanghai}.500", "--timezone", "+8").out == rmqtool(*at, f"{utc}.500").out
    assert rmqtool("dump", store, "--from-time", shanghai, "--utc").out == ""
    assert rmqtool("dump", store, "--from-time", "2026-11-22T02:00", "--timezone", "+8").out != ""


def test_times_that_do_not_parse_are_refused_with_examples(golden: Unpacked) -> None:
    store = golden("5.5.0-clean-basic")
    for command in (
        ("dump", store, "--from-time", "soon"),
        ("dump", store, "--to-time", "soon"),
        ("get", store, "--topic", "a", "--queue-id", 0, "--time", "soon"),
        ("get", store, "--topic", "a", "--key", "k", "--from-time", "soon"),
        ("export", store, "--to", "x", "--from-time", "soon"),
        ("stats", store, "--to-time", "soon"),
        ("search", store, "x", "--from-time", "soon"),
    ):
        ran = rmqtool(*command)
        assert ran.code == 2, command
        assert "'soon' is not a time; examples: 2024-05-31T08:00" in ran.err
    assert rmqtool("dump", store, "--utc", "--timezone", "Asia/Tokyo").code == 2
    ran = rmqtool("--timezone", "Nowhere", "info", store)
    assert (ran.code, "--timezone: no time zone 'Nowhere'" in ran.err) == (2, True)


def test_the_variable_tz_chooses_the_zone(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(golden("5.5.0-clean-basic"))
    for name, shown, warning in (
        ("Asia/Shanghai", "2026-11-22T02:", ""),
        (":Asia/Shanghai", "2026-11-22T02:", ""),
        ("Mars/Olympus", "2026-11-21T18:", "no time zone 'Mars/Olympus'"),
    ):
        monkeypatch.setenv("TZ", name)
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            assert run(["info", store]) == 0
        assert shown in out.getvalue()
        assert warning in err.getvalue()
