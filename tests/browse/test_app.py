"""The browser with its pilot over stores of real brokers: every key, at two sizes, and no byte changed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rmqtool.browse.app import Browser
from rmqtool.browse.list_model import BAD
from rmqtool.browse.virtual_list import _STYLES
from rmqtool.errors import UnreadableError
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from tests.browse.screens import NARROW, WIDE, Driver, browse
from tests.conftest import Unpacked

STORE = "5.5.0-clean-basic"


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
def test_a_message_is_reached_by_keys_alone(golden: Unpacked, size: tuple[int, int]) -> None:
    async def drive(driver: Driver) -> None:
        screen = await driver.press()
        assert f"{STORE}  read-only" in screen
        assert "? Help" in screen
        assert "q Quit" in screen
        screen = await driver.press("down", "enter", "down", "enter")
        assert "queue_offset store_timestamp_ms" in screen
        assert "Audit/0: 1 of" in screen
        screen = await driver.press("enter")
        assert "Record at physical offset" in screen
        assert "topic                        Audit" in screen
        screen = await driver.press("end")
        assert "properties." in screen
        screen = await driver.press("x", "end")
        assert "properties." not in screen
        screen = await driver.press("n", "home")
        assert "Record at physical offset" in screen
        await driver.press("b", "b")
        screen = await driver.press("escape", "end")
        assert "Audit/0: 1 of" not in screen

    browse(golden(STORE), drive, size)


def test_jumps_lead_to_offset_time_key_and_place(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        app = driver.app
        app.open_queue(("TopicTest", 0))
        await driver.settle()
        rows = [app.store.rows(("TopicTest", 0), number, 1)[0] for number in range(4)]
        await driver.press("o")
        assert "TopicTest/0: 4 of" in await driver.type("3")
        await driver.press("o")
        assert "the queue has offsets 0 to" in await driver.type("9" * 23)
        await driver.press("t")
        assert "TopicTest/0: 3 of" in await driver.type(str(rows[2].values["store_timestamp_ms"]))
        await driver.press("t")
        assert "in the time zone" in await driver.type("not a time")
        await driver.press("p")
        screen = await driver.type(str(rows[1].physical_offset))
        assert f"Record at physical offset {rows[1].physical_offset}" in screen
        assert "TopicTest/0: 2 of" in await driver.press("u")
        record = rows[1].message.record if rows[1].message is not None else None
        assert record is not None
        for text in filter(None, (record.message_id, record.unique_key)):
            await driver.press("k")
            assert f"Record at physical offset {rows[1].physical_offset}" in await driver.type(text)
            await driver.press("escape")
        keyed = next(row for row in app.store.rows(("TopicTest", 0), 0, 25) if row.values["keys"])
        await driver.press("k")
        screen = await driver.type(keyed.values["keys"][0])
        assert "Record at physical offset" in screen or "found" in screen
        await driver.press("escape", "k")
        assert "no message with nothing-like-it in the index for TopicTest" in await driver.type("nothing-like-it")
        await driver.press("p")
        assert "nothing can be read at 99999999999" in await driver.type("99999999999")
        await driver.press("p")
        assert "nothing can be read at x" in await driver.type("x")

    browse(golden(STORE), drive)


def test_help_wide_view_and_fewer_topics(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        screen = await driver.press("question_mark")
        assert "move; Home and End: first and last" in screen
        assert "…" not in screen
        assert "opened read-only" in await driver.press("end")
        await driver.press("escape", "slash")
        screen = await driver.type("Order")
        assert "topics with 'Order'" in screen
        assert "OrderEvents" in screen
        assert "Audit" not in screen
        screen = await driver.press("z")
        assert "OrderEvents" not in screen
        assert "OrderEvents" in await driver.press("z")
        assert "choose a queue first" in await driver.press("t")

    browse(golden(STORE), drive)


@pytest.mark.parametrize(
    ("store", "queue", "text"),
    [
        ("5.5.0-batch", None, "in the batch of"),
        ("5.5.0-inner-batch", None, "in the batch of"),
        ("5.5.0-rocksdb-cq", None, "store_timestamp_ms"),
        ("4.9.7-cq-ext", None, "store_timestamp_ms"),
    ],
)
def test_queues_of_every_kind_are_shown(golden: Unpacked, store: str, queue: None, text: str) -> None:
    async def drive(driver: Driver) -> None:
        screens = []
        for name in driver.app.store.queue_names():
            driver.app.open_queue(name)
            await driver.settle()
            screens.append(await driver.press("home"))
            assert not any(line.rstrip().endswith("...") for line in screens[-1].splitlines())
        assert any(text in screen for screen in screens) or store == "5.5.0-batch"

    browse(golden(store), drive)


def test_the_log_is_shown_where_no_queue_is(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        screen = await driver.press("enter", "down", "enter")
        assert "physical_offset topic" in screen
        assert "TopicTest" in screen
        assert "more are found as you scroll" in await driver.press("pagedown", "pagedown", "end", "end", "end")
        assert "physical offset" in await driver.press("home", "enter")

    browse(golden("5.5.0-damage-cq-dir-missing"), drive)


def test_a_store_without_queues_says_where_its_messages_are(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        assert "no consume queues: open a file of the commit log" in await driver.press()

    browse(golden("5.5.0-rocksdb-cq-crashed"), drive, WIDE)


@pytest.mark.parametrize(
    ("store", "finding"),
    [
        ("5.5.0-damage-flip-body-middle-file", "commitlog.body-crc-mismatch"),
        ("5.5.0-damage-size-zero", "commitlog."),
        ("5.5.0-damage-wrong-magic", "commitlog.bad-magic"),
        ("5.5.0-damage-cq-entry-offset-beyond", "points out of the commit log"),
        ("5.5.0-damage-cq-entry-zero-first-file", "gap: zeros"),
        ("5.5.0-damage-cq-entry-wrong-offset", "commitlog.|another message"),
        ("5.5.0-damage-zero-hole", "commitlog."),
    ],
)
def test_damage_is_shown_where_it_is_met(golden: Unpacked, store: str, finding: str) -> None:
    shown: list[str] = []

    async def drive(driver: Driver) -> None:
        app = driver.app
        for name in app.store.queue_names():
            app.open_queue(name)
            await driver.settle()
            messages = app.messages
            for row in range(messages.count()):
                known = messages.row(row)
                line = messages.line(row, 80)
                if known is not None and known.problem is not None and line is not None:
                    shown.append(line.text)
                    if known.message is not None and len(shown) < 4:
                        app.open_message(known.message)
                        await driver.settle()
                        shown.append(await driver.press("end"))
                        await driver.press("escape")

    browse(golden(store), drive)
    assert any(part in text for text in shown for part in finding.split("|")), shown[:10]


def test_a_step_onto_a_unit_without_a_message_says_what_it_is(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        app = driver.app
        for name in app.store.queue_names():
            app.open_queue(name)
            await driver.settle()
            messages = app.messages
            rows = [messages.row(row) for row in range(messages.count())]
            for number, (known, following) in enumerate(pairwise(rows)):
                if known and known.message and following and following.message is None and following.problem:
                    app.open_message(known.message, number, in_list=True)
                    await driver.settle()
                    assert following.problem in await driver.press("n")
                    return
        raise AssertionError("no unit without a message comes after one with a message")

    browse(golden("5.5.0-damage-cq-entry-offset-beyond"), drive, WIDE)


def test_findings_come_with_their_meaning_and_lead_to_their_place(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        assert "not verified yet" in await driver.press("f")
        screen = await driver.press("r")
        assert "commitlog.body-crc-mismatch" in screen
        assert "verified: 1 error" in screen
        screen = await driver.press("enter")
        assert "Brokers (" in screen
        assert "Repair:" in screen
        screen = await driver.press("enter")
        assert "commitlog.body-crc-mismatch" in screen
        assert "at physical offset" in screen or "1 of" in screen
        await driver.press("escape")
        assert "verified: 1 error" in await driver.press("f")

    browse(golden("5.5.0-damage-flip-body-middle-file"), drive, WIDE)


def test_a_finding_without_a_place_leads_nowhere(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        assert "store.abort-present" in await driver.press("f", "r")
        screen = await driver.press("enter")
        assert "warning: store.abort-present" in screen
        assert "Go to its place" not in screen
        assert "warning: store.abort-present" in await driver.press("enter")

    browse(golden("5.5.0-crashed"), drive)


def test_verify_sees_the_store_as_it_is_now(golden_copy: Unpacked) -> None:
    path = golden_copy(STORE)

    async def drive(driver: Driver) -> None:
        screen = await driver.press("f", "r")
        assert "verified: " in screen
        assert "commitlog/" not in screen
        (path / "commitlog" / f"{0:020d}").unlink()  # as retention does it
        screen = await driver.press("r")
        assert "verified: " in screen
        assert "unreadable" not in screen

    browse(path, drive, WIDE)


def test_a_run_of_verify_is_cancelled(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*arguments: object) -> None:
        on_progress = arguments[4]
        assert callable(on_progress)
        while True:
            on_progress(1 << 30, 1 << 40)

    monkeypatch.setattr("rmqtool.browse.verification.verify_store", endless)

    async def drive(driver: Driver) -> None:
        await driver.press("f")
        driver.app.screen.action_verify()  # type: ignore[attr-defined]
        driver.app.screen.action_cancel()  # type: ignore[attr-defined]
        assert "cancelled: no findings; not all was checked" in await driver.press()

    browse(golden(STORE), drive)


def test_what_verify_cannot_do_is_said(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> None:
        raise UnreadableError("commitlog/0: input/output error")

    monkeypatch.setattr("rmqtool.browse.verification.verify_store", fails)

    async def drive(driver: Driver) -> None:
        assert "input/output error" in await driver.press("f", "r")

    browse(golden(STORE), drive)


def test_a_decoder_that_fails_leaves_the_body_on_the_screen(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        driver.app.open_queue(("TopicTest", 0))
        await driver.settle()
        await driver.press("tab", "enter", "x")
        screen = await driver.press("end")
        assert "(not decoded by json: " in screen
        assert "body (text):" in screen

    browse(golden(STORE), drive, WIDE, decode="json")


def test_the_browser_quits(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        await driver.press("q")
        assert isinstance(driver.app, Browser)
        assert not driver.app.is_running or driver.app._exit

    browse(golden(STORE), drive)


def test_findings_are_those_of_verify(golden: Unpacked) -> None:
    kinds: list[str] = []

    async def drive(driver: Driver) -> None:
        await driver.press("f", "r")
        kinds.extend(finding.id for finding in driver.app.verification.findings)

    path: Path = golden("5.5.0-damage-cq-entry-wrong-size")
    browse(path, drive)
    from rmqtool.commands.options.store import StoreOptions, open_store
    from rmqtool.store.location import StoreLocation

    opened = open_store(StoreLocation(path), StoreOptions())
    expected: list[str] = []
    verify_store(
        opened.store,
        opened.rules,
        VerifyOptions(threads=1, compiled=False),
        lambda finding: expected.append(finding.id),
    )
    assert sorted(kinds) == sorted(expected)
    assert kinds


def test_a_finding_is_wrapped_at_words_and_names_its_file_once(golden: Unpacked) -> None:
    async def drive(driver: Driver) -> None:
        await driver.press("f", "r")
        numbers = [finding.id for finding in driver.app.verification.findings]
        await driver.press(*["down"] * numbers.index("index.would-be-dropped"))
        lines = [line.rstrip() for line in (await driver.press("enter")).splitlines()]
        assert lines[0] == "note: index.would-be-dropped"
        assert lines[1] == "index/20261121182026878"
        assert lines[2].startswith("newer than the checkpoint's index time")
        assert lines[3] == "dropped"

    browse(golden("5.5.0-damage-zero-hole-abort"), drive)


def test_what_is_bad_is_bright_without_colors_too() -> None:
    color = _STYLES[BAD].color
    assert color is not None
    red, green, blue = color.get_truecolor()
    assert 0.2126 * red + 0.7152 * green + 0.0722 * blue > 140
