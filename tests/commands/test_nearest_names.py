"""A name that does not exist gets the nearest ones, in every command that takes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import NEWEST
from rmqtool.report.names import nearest, unknown_name
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

STORE = "5.5.0-clean-basic"


def test_near_names_are_found_whatever_their_case() -> None:
    assert nearest("orderevents", ["OrderEvents", "Audit"]) == "; did you mean OrderEvents?"
    assert nearest("zzz", ["OrderEvents", "Audit"]) == ""
    assert unknown_name("recipe", "zzz", ["basic", "crashed"]) == "no recipe 'zzz'; there are basic, crashed"
    assert unknown_name("recipe", "zzz", ["a", "b"], "x list") == "no recipe 'zzz'; to list all 2: x list"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("formats", "chekpoint"), "did you mean checkpoint"),
        (("fixture", "make", "many-file", "STORE"), "did you mean many-files"),
        (("fixture", "make", "basic", "STORE", "--set", "version=5.5"), "did you mean 5.5.1 or 5.5.0?"),
        (("fixture", "make", "basic", "STORE", "--set", "version=99.0.0"), f"did you mean {NEWEST}?"),
        (("fixture", "make", "basic", "STORE", "--set", "version=4.3.0"), "did you mean 4.4.0?"),
        (("fixture", "make", "basic", "STORE", "--set", "version=5.3.9"), "did you mean 5.3.4 or 5.4.0?"),
        (
            ("fixture", "make", "timer", "STORE", "--set", "version=4.9.7"),
            "no store like 'timer'; did you mean 5.0.0",
        ),
        (("fixture", "damage", "log-bit-flip-lat", "STORE"), "did you mean log-bit-flip-late"),
        (("dump", "GOLDEN", "--fields", "topik"), "did you mean topic"),
        (("rebuild", "GOLDEN", "--queues", "--topic", "OrderEvent", "--dry-run"), "did you mean OrderEvents"),
    ],
)
def test_a_wrong_name_is_wrong_usage(golden: Unpacked, tmp_path: Path, words: tuple[str, ...], hint: str) -> None:
    places = {"STORE": tmp_path / "new", "GOLDEN": golden(STORE)}
    with assert_store_unchanged(golden(STORE)):
        ran = rmqtool(*(places.get(word, word) for word in words))
    assert ran.code == 2
    assert hint in ran.err


@pytest.mark.parametrize("words", [("damage", "log-bit-flip-late"), ("check",)])
def test_a_store_of_fixture_that_is_not_there_is_said_to_be_missing(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = rmqtool("fixture", *words, tmp_path / "nowhere")
    assert ran.code == 4
    assert "nowhere: no such directory" in ran.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("dump", "--topic", "OrderEvent"), 0),
        (("get", "--topic", "OrderEvent", "--key", "x"), 6),
        (("get", "--topic", "OrderEvent", "--queue-id", 0, "--queue-offset", 0), 6),
    ],
)
def test_a_filter_that_no_topic_fits_is_a_warning(golden: Unpacked, words: tuple[str, ...], code: int) -> None:
    ran = rmqtool(words[0], golden(STORE), *words[1:])
    assert ran.code == code
    assert "did you mean OrderEvents?" in ran.err


@pytest.mark.parametrize("topic", ["OrderEvents", "Order*"])
def test_a_topic_that_exists_is_not_doubted(golden: Unpacked, topic: str) -> None:
    ran = rmqtool("dump", golden(STORE), "--topic", topic, "--tag", "no such tag")
    assert (ran.code, ran.err) == (0, "")
    ran = rmqtool("rebuild", golden(STORE), "--queues", "--topic", "OrderEvents", "--dry-run")
    assert ran.code == 0


def test_a_topic_that_only_the_log_has_is_rebuilt(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-many-no-queues")
    ran = rmqtool("rebuild", path, "--queues", "--topic", "TopicTest", "--queue-file-size", 600, "--dry-run")
    assert ran.code == 3
    assert "consumequeue/TopicTest" in ran.out
