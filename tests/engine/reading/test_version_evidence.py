"""The version that a store was used by is guessed right for every store that a real broker wrote."""

from __future__ import annotations

import pytest

from rmqtool.engine.reading import version_evidence
from rmqtool.engine.reading.version_evidence import infer_version
from rmqtool.engine.rules.versions import NEWEST, PRESUMED, SUPPORTED, SUPPORTED_RULES, parse_version, rules_for
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.engine.memory_view import log_file, made_store, record, segment_name
from tests.golden_stores import broker_names, crashed_names, healthy_names

LOG = f"commitlog/{segment_name(0)}"


@pytest.mark.parametrize("name", [*healthy_names(), *crashed_names(), *broker_names()])
def test_the_guess_has_the_writers_generation(golden: Unpacked, name: str) -> None:
    releases = infer_version(survey(open_directory(golden(name))))
    writer = name.removeprefix("broker-").partition("-")[0]
    if releases is None:
        # Only a store in which nothing was ever put shows nothing.
        assert name == "4.9.7-clean-empty"
        return
    if name != "4.9.7-properties":  # raw texts that no client and broker write end with a separator in it
        assert parse_version(releases.first) <= parse_version(writer) <= parse_version(releases.last), releases.evidence
    # What no rule tells from the presumed release has its rules, though a later one wrote it.
    generation = min(parse_version(writer), parse_version(PRESUMED))[:2]
    assert parse_version(releases.rules)[:2] == generation, releases.evidence


@pytest.mark.parametrize("name", [*healthy_names(), *crashed_names(), *broker_names()])
def test_a_new_release_does_not_change_whose_rules_apply(
    golden: Unpacked, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = survey(open_directory(golden(name)))
    before = infer_version(store)
    monkeypatch.setattr(version_evidence, "SUPPORTED_RULES", (*SUPPORTED_RULES, rules_for("5.6.0")))
    after = infer_version(store)
    if before is None or after is None:
        assert after == before
        return
    assert (after.first, after.rules) == (before.first, before.rules)
    assert after.last == ("5.6.0" if before.last == SUPPORTED[-1] else before.last)


def used_store(files: dict[str, bytes], properties: dict[str, str] | None = None, **fields: int) -> tuple[str, ...]:
    raw = record(0, properties=properties or {"TAGS": "a"}, **fields)
    made = made_store({LOG: log_file([raw], 4096), **files}, commitlog_file_size=4096)
    releases = infer_version(made)
    return (str(releases), *(releases.evidence if releases is not None else ()))


def test_an_empty_abort_speaks_for_an_old_broker() -> None:
    assert used_store({"abort": b""})[0] == "4.4.0 to 4.9.0"
    assert used_store({"abort": b"12345"})[0] == "5.2.0 to 5.3.4"
    # A process id is certain, that something is missing is not.
    assert used_store({"abort": b"12345", "rocksdbstore/CURRENT": b""})[0] == f"5.4.0 to {NEWEST}"


def test_a_newer_mark_outweighs_what_an_older_broker_left() -> None:
    found = used_store({"abort": b"", "timerwheel": b""})
    assert found[0] == "5.2.0 to 5.3.4"
    assert "there is a timer wheel" in found


def test_checkpoint_fields_tell_versions_apart() -> None:
    def checkpoint(field: int) -> dict[str, bytes]:
        return {"checkpoint": bytes(8 * field) + (1).to_bytes(8, "big") + bytes(4096 - 8 * field - 8)}

    side_store = {"rocksdbstore/CURRENT": b""}
    assert used_store({**checkpoint(0), "abort": b""})[0] == "4.4.0 to 4.9.0"
    assert used_store({**checkpoint(4)})[0] == "5.2.0 to 5.3.4"
    assert used_store({**checkpoint(5), **side_store})[0] == f"5.5.0 to {NEWEST}"
    assert not any("checkpoint" in sentence for sentence in used_store({"checkpoint": b"\xff" * 48}))


def test_damage_of_every_kind_is_survived() -> None:
    for content in (b"", b"\0" * 4096, b"\xff" * 4096, bytes(range(256)) * 16):
        files = {LOG: content, "abort": content, "checkpoint": content, "index/20260101000000000": content}
        infer_version(made_store(files, commitlog_file_size=4096))


def test_nothing_tells_nothing() -> None:
    assert infer_version(made_store({"checkpoint": b""})) is None
