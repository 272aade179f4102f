"""The page of a report stays small on any store, and nothing from a store becomes markup."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from dataclasses import replace
from typing import Any

import pytest

from rmqtool.findings.registry import CATALOG
from rmqtool.report.page.finding_kinds import FindingKind, FindingKinds
from rmqtool.report.page.log_picture import DrawnFile, LogPicture
from rmqtool.report.page.page import PageFacts, page_text
from rmqtool.report.page.queue_bars import QueueBars
from rmqtool.report.page.timeline import IndexRange, Times
from rmqtool.report.text import escaped
from tests.report.page.html_text import assert_harmless

GIB = 1 << 30
SIZE_MAX = 1_000_000
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</style></title><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "a\x00b\x1b[31m\x07\n\r\x9b",
    "\u202egpj.exe\u2066\ud800",
    "&lt;b&gt;&#x3c;script&#x3e;",
    "javascript:alert(1)",
]
CHECKED = {"checked": {"records": 1, "bytes": 2, "units": 3, "entries": 4}, "left_out_bytes": 0}


def finding(number: int, text: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": CATALOG[number % len(CATALOG)].id, "severity": CATALOG[number % len(CATALOG)].severity.value,
        "file": f"commitlog/{text}", "message": text, "file_position": 1, "physical_offset": number, "length": 9,
        "count": 1, "why": text, "topic": text, "queue_id": 1, **fields,
    }  # fmt: skip


def facts(text: str, *, files: int = 3, queues: int = 3, findings: int = 3, rows: int = 3) -> PageFacts:
    """A store of which every name and sentence holds a text."""
    log = LogPicture([DrawnFile(f"commitlog/{number}{text}", number * GIB, GIB) for number in range(files)])
    bars, kinds = QueueBars(), FindingKinds()
    for number in range(queues):
        bars.add(f"{text}{number // 3}", number % 3, 1000, number, number + GIB)
    for number in range(findings):
        row = finding(number, text, physical_offset=number * files * GIB // findings)
        about = CATALOG[number % len(CATALOG)]
        log.add(row)
        kinds.add(row, FindingKind(about.id, about.severity.value, about.meaning, about.brokers, about.remedy))
    log.finish(files * GIB - GIB // 2)
    lost = {"messages": 5, "bytes": 6, "by_topic": {f"{text}{number}": 7 for number in range(rows)}}
    forecasts = [
        {
            "broker_version": f"5.{number}.0", "starts": number % 2 == 0, "why_not": text, "lost": lost,
            "messages_without_log": 0, "repeat_count": number, "unnoticed_damage_count": 0, "unindexed_messages": 0,
            "deleted_files": [text] * rows, "dropped_index_files": [], "log_end_offset": GIB,
            "scan_start_offset": number, "stops_at": {"physical_offset": 1, "finding": text},
        }
        for number in range(8)
    ]  # fmt: skip
    step = {"action": "replace", "file": text, "length": 9}
    plan = {
        "steps": [{**step, "why": f"{text}{number % 1000}"} for number in range(rows)],
        "remaining": [finding(number, text) for number in range(rows)],
        "damage": [finding(number, text) for number in range(rows)], "needs_decision": False, "command": "recover",
        "broker_version": text, "loss": lost, "kept_beyond_broker": lost, "abort_stays": text, "notes": [text] * rows,
        "disk_needed_bytes": 5, "next_step": {"command": text, "reason": text}, "forecast_after": {},
        "verdict": "ok", "flags": "--full",
        "lost_for_good": {
            "messages": 7,
            "queues": [{"topic": text, "queue_id": 1, "queue_offset": 1, "count": 1}] * rows,
        },
    }  # fmt: skip
    info = {
        "store": text, "shutdown": "clean", "in_use": False, "unfinished_repair": False,
        "broker_version": {"rules": text, "chosen": text},
        "commitlog": {
            "min_offset": 0, "max_offset": 9, "max_offset_is": "exact", "first_store_timestamp_ms": 1,
            "last_store_timestamp_ms": None,
        },
        "consumequeue": {"kind": "file", "queue_count": 1}, "index": {"file_count": 1, "entry_count": None},
        "problems": [text] * rows,
    }  # fmt: skip
    index = [IndexRange(text, number, number + 5, number, number + 1) for number in range(min(rows, 200))]
    times = Times(1, 10**12, {f"{text}{number}": number for number in range(1, 200)}, index, {"index_timestamp_ms": 5})
    left_out = [{"path": text, "kind": text, "reason": text}] * rows
    return PageFacts(
        "0", 0, [("forecast", text), ("verify", text)], "damaged", {"command": text, "reason": text}, info, log, bars,
        times, kinds, CHECKED, forecasts, text, [plan, text, plan], left_out,
    )  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_from_a_store_becomes_markup(text: str) -> None:
    page = assert_harmless(page_text(facts(text)))
    assert escaped(text) in page.text


def test_control_characters_are_shown_as_escapes() -> None:
    page = assert_harmless(page_text(facts("a\x00b\x1b[31m\u202e")))
    assert r"a\x00b\x1b[31m\u202e" in page.text


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        *((text, 100_000) for text in ("x" * 255, "<" * 255, "\x01" * 255, "消" * 100)),
        pytest.param("<" * 255, 1_000_000, marks=pytest.mark.slow),
    ],
)
def test_a_terabyte_and_a_million_queues_stay_below_a_megabyte(text: str, queues: int) -> None:
    made = page_text(facts(text, files=1100, queues=queues, findings=50_000, rows=20_000))
    assert_harmless(made)
    assert len(made.encode()) < SIZE_MAX


def test_a_long_text_is_cut() -> None:
    made = page_text(facts("y" * 1_000_000, rows=1))
    assert len(made) < SIZE_MAX
    assert "y" * 801 not in made


def test_the_policy_allows_the_own_style_only() -> None:
    made = page_text(facts("a"))
    style = made.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src &#39;sha256-{digest}&#39;" in made
    assert "style=" not in made


def test_names_in_the_texts_of_findings_are_code() -> None:
    about = next(kind for kind in CATALOG if "`" in kind.meaning)
    first = about.meaning.split("`")[1]
    kinds = FindingKinds()
    kinds.add(finding(0, "a"), FindingKind(about.id, about.severity.value, about.meaning, about.brokers, about.remedy))
    section = page_text(replace(facts("x"), kinds=kinds)).split('<section id="findings">')[1].split("</section>")[0]
    assert f"<code>{html.escape(first)}</code>" in section
    assert "`" not in section


def test_what_is_left_out_is_counted() -> None:
    page = assert_harmless(page_text(facts("T", files=1100, queues=3000, findings=5000, rows=300)))
    assert "The store has 3000 queues, too many for a bar each" in page.text
    assert "936 more topics with fewer messages" in page.text
    assert re.search(r"and \d+ more; rmqtool verify lists them all", page.text)
    assert "files not listed" in page.text
    assert "and 290 more" in page.text


@pytest.mark.parametrize(("marked", "text"), [(1, "1 of 3 files has findings."), (2, "2 of 3 files have findings.")])
def test_one_file_has_findings_and_two_have_them(monkeypatch: pytest.MonkeyPatch, marked: int, text: str) -> None:
    monkeypatch.setattr(LogPicture, "marked_file_count", marked)
    assert text in assert_harmless(page_text(facts("T", files=3))).text


def test_a_store_without_a_log_has_a_page() -> None:
    page = assert_harmless(page_text(facts("T", files=0, queues=0, findings=0, rows=0)))
    assert "There are no files of a plain commit log." in page.text
