"""A bundle gives the store's own answers, and holds no body, key, tag or property value of it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import zstandard

from rmqtool.evidence.bundle import BundleError
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.recorded import parse_answers
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.java_text import java_hash_of_bytes
from tests import golden_stores
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.evidence.leak_scan import leaks

HOLE = "5.5.0-damage-zero-hole-abort"
SAMPLE = (
    "4.9.7-properties", HOLE, "5.5.0-v2", "5.5.0-damage-cq-only-file-zero-abort", "broker-5.5.0-pop",
    "broker-5.5.0-compaction", "broker-5.5.0-timer", "broker-4.9.7-delay-killed", "4.9.7-damage-index-chain-loop",
)  # fmt: skip
GENERATED = ("record-crc", "inner-batch")


def written(store: Path, bundle: Path, *options: str) -> dict[str, object]:
    ran = rmqtool("evidence", store, "--output", bundle, *options)
    assert ran.code == 0, ran.err
    return dict(json.loads(member_of(bundle, "manifest.json")))


def contents(bundle: Path) -> bytes:
    with bundle.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def member_of(bundle: Path, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(contents(bundle))) as archive:
        member = archive.extractfile(name)
        assert member is not None
        return member.read()


def store_of(name: str, folder: Path) -> Path:
    """A golden store, or a generated one."""
    if name not in RECIPES:
        return golden_stores.unpack(name, folder)
    ran = rmqtool("fixture", "make", name, folder / "store")
    assert ran.code == 0, ran.err
    return folder / "store"


@pytest.mark.parametrize("name", [*SAMPLE, *GENERATED])
def test_bundle_answers_as_the_store_and_holds_nothing_a_customer_wrote(name: str, tmp_path: Path) -> None:
    store = store_of(name, tmp_path)
    assert written(store, tmp_path / "whole")["differences"] == []
    assert leaks(store, tmp_path / "whole") == []
    assert written(store, tmp_path / "ranges", "--max-size", "1")["is_whole"] is False
    assert leaks(store, tmp_path / "ranges") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*golden_stores.names(), *golden_stores.broker_names(), *RECIPES])
def test_no_bundle_of_any_store_holds_what_a_customer_wrote(name: str, tmp_path: Path) -> None:
    store = store_of(name, tmp_path)
    manifest = written(store, tmp_path / "whole")
    is_recorded = "dledger" in name or "rocksdb" in name  # of their data the size is in the bundle
    assert (manifest["differences"] == []) is not is_recorded
    assert leaks(store, tmp_path / "whole") == []


@pytest.mark.parametrize("name", ["4.9.7-properties", "broker-5.5.0-pop"])
def test_the_scanner_finds_what_a_bundle_with_bodies_holds(name: str, tmp_path: Path) -> None:
    store = golden_stores.unpack(name, tmp_path)
    written(store, tmp_path / "open", "--with-bodies")
    assert len(leaks(store, tmp_path / "open")) > 5


@pytest.mark.parametrize("options", [(), ("--max-size", "1"), ("--without-log",)])
@pytest.mark.parametrize("name", [HOLE, "5.5.0-clean-basic", "broker-5.3.3-dledger"])
def test_verify_and_forecast_of_a_bundle_come_to_what_they_come_to_on_the_store(
    golden: Unpacked, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    store = golden(name)
    is_recorded = bool(options) or "dledger" in name
    written(store, tmp_path / "bundle", *options)
    for command in ("verify", "forecast"):
        of_store = rmqtool(command, store, "--format", "json")
        of_bundle = rmqtool(command, tmp_path / "bundle", "--format", "json")
        assert of_store.code == of_bundle.code
        assert "the answer comes from the bundle" in of_bundle.err
        assert ("it was recorded" in of_bundle.err) == is_recorded
        own, other = json.loads(of_store.out), json.loads(of_bundle.out)
        if not is_recorded or command == "forecast":
            assert own == other
        else:
            assert own["summary"] == other["summary"]
            assert [row["id"] for row in own["findings"]] == [row["id"] for row in other["findings"]]
        assert schema_errors(other, schema(command)) == []


def schema(command: str) -> dict[str, object]:
    return dict(json.loads(rmqtool("formats", "--json-schema", command).out))


def test_a_recorded_answer_is_for_no_other_question(golden: Unpacked, tmp_path: Path) -> None:
    written(golden(HOLE), tmp_path / "bundle", "--max-size", "1")
    for command in (("verify", "--depth", "records"), ("forecast", "--broker-version", "4.9.7")):
        ran = rmqtool(command[0], tmp_path / "bundle", *command[1:])
        assert (ran.code, ran.out) == (4, "")
        assert "only the answers without options" in ran.err


def test_ranges_hold_the_bytes_around_damage_and_the_start_of_each_file(golden: Unpacked, tmp_path: Path) -> None:
    store = golden(HOLE)
    manifest = written(store, tmp_path / "bundle", "--max-size", "1")
    files = manifest["files"]
    assert isinstance(files, list)
    by_path = {file["path"]: (number, file) for number, file in enumerate(files)}
    number, file = by_path["commitlog/00000000000000196608"]
    hole = 228_590 - 196_608
    assert [at for at, size in file["ranges"] if at < hole < at + size]
    content = member_of(tmp_path / "bundle", f"files/{number}")
    assert len(content) == sum(size for _, size in file["ranges"])
    log = (store / "commitlog/00000000000000196608").read_bytes()
    assert (content[:8], content[12:20]) == (log[:8], log[12:20])  # size and magic, queue id and flag
    assert all(file["ranges"][0][0] == 0 for _, file in by_path.values() if file["ranges"])


def test_a_sparse_terabyte_gives_a_small_bundle(tmp_path: Path) -> None:
    store = store_of("default-size", tmp_path)
    last = max(int(path.name) for path in store.glob("commitlog/[0-9]*"))
    for number in range(1, 1025):
        with (store / f"commitlog/{last + (number << 30):020d}").open("wb") as file:
            file.truncate(1 << 30)
    manifest = written(store, tmp_path / "bundle", "--max-size", "1")
    assert len(manifest["files"]) > 1024  # type: ignore[arg-type]
    assert manifest["findings"]["commitlog.file-after-end"] == 1  # type: ignore[index]
    assert (tmp_path / "bundle").stat().st_size < 1 << 20
    ran = rmqtool("verify", tmp_path / "bundle")
    assert (ran.code, ran.out.split(":")[0]) == (3, "INCONSISTENT")


def test_the_end_of_a_broker_log_is_in_the_bundle_without_texts_of_messages(tmp_path: Path) -> None:
    store = golden_stores.unpack("4.9.7-properties", tmp_path)
    value = "noseparator"  # of a property that only a customer gives
    assert value.encode() in (store / "commitlog" / f"{0:020d}").read_bytes()
    log = tmp_path / "store.log"
    (store / "consumequeue/Topic_A").mkdir(exist_ok=True)
    start = "2026-01-01 10:11:12 WARN SendMessageThread_1 - putMessage failed"
    line = f"{start} {value} Topic_A#{value} body=[1, 2] Topic_A\n"
    log.write_text(f"{'u' * 999}\n" * 5_000 + line)
    manifest = written(store, tmp_path / "bundle", "--broker-log", str(log))
    assert manifest["logs"] == ["store.log"]
    content = member_of(tmp_path / "bundle", "logs/0").decode()
    assert len(content) <= 4 << 20
    assert content.startswith("x" * 999 + "\n")
    hidden = "x" * len(value)
    assert (
        content.splitlines()[-1]
        == f"{line[:19]} WARN SendMessageThread_1 - putMessage failed {hidden} Topic_A#{hidden} body=" + "x" * 14
    )


def test_the_screen_says_in_words_what_is_in_the_bundle_and_how_answers_differ(
    golden: Unpacked, tmp_path: Path
) -> None:
    screen = rmqtool("evidence", golden(HOLE), "--output", tmp_path / "bundle").out
    assert "\nFiles           16 whole; 7 redacted; 7 with size and time only\n" in screen
    screen = rmqtool("evidence", golden("broker-5.5.0-timer"), "--output", tmp_path / "other", "--hide-names").out
    assert "Differs         verify: 'INCONSISTENT: " in screen


@pytest.mark.parametrize("command", ["info", "recover", "salvage", "report", "get", "evidence"])
def test_a_command_that_reads_no_bundle_says_which_do(golden: Unpacked, tmp_path: Path, command: str) -> None:
    written(golden(HOLE), tmp_path / "bundle")
    options = {
        "report": ("--html", tmp_path / "page.html"),
        "get": ("--topic", "TopicTest", "--queue-id", 0, "--queue-offset", 0),
        "evidence": ("--output", tmp_path / "other"),
    }
    ran = rmqtool(command, tmp_path / "bundle", *options.get(command, ()))
    assert ran.code == 4
    assert "a support bundle; only `rmqtool verify` and `rmqtool forecast` read it" in ran.err


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_names_what_is_in_the_bundle(golden: Unpacked, tmp_path: Path, form: str) -> None:
    ran = rmqtool("evidence", golden(HOLE), "--output", tmp_path / "bundle", "--format", form)
    assert (ran.out.count("\n") == 1) == (form == "jsonl")
    result = json.loads(ran.out)
    assert schema_errors(result, schema("evidence")) == []
    assert (result["verdict"], result["answers"], result["is_redacted"]) == ("damaged", "computed", True)
    assert result["bundle_bytes"] == (tmp_path / "bundle").stat().st_size


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b'{"verify": {}, "forecast": {}}', b"[" * 100_000, b'{"verify": null, "forecast": 7}'],
)
def test_answers_from_elsewhere_are_checked(text: bytes) -> None:
    with pytest.raises(BundleError, match="answers"):
        parse_answers(text)


def test_answers_with_an_unknown_finding_or_exit_code_are_refused(golden: Unpacked, tmp_path: Path) -> None:
    written(golden(HOLE), tmp_path / "bundle")
    raw = member_of(tmp_path / "bundle", "answers.json")
    assert parse_answers(raw).verify.exit_code == 3
    for old, new in ((b'"exit_code": 3', b'"exit_code": 0x'), (b"commitlog.hole", b"commitlog.whole")):
        with pytest.raises(BundleError, match="answers"):
            parse_answers(raw.replace(old, new))
    with pytest.raises(BundleError, match="exit code"):
        parse_answers(raw.replace(b'"exit_code": 3', b'"exit_code": 1'))


@pytest.mark.parametrize(
    "text",
    ["k1", "TagA", "order-17", "键值", "x" * 300, "😀", "𠀀", "𠏿", "한글", "éé", "ñandú", "가" * 3],
)
def test_other_text_has_the_same_hash_and_length(text: str) -> None:
    other = Pseudonyms().same_hash(text.encode())
    assert other != text.encode()
    assert len(other) == len(text.encode())
    assert java_hash_of_bytes(other) == java_hash_of_bytes(text.encode())


def test_a_file_that_exists_is_kept(golden: Unpacked, tmp_path: Path) -> None:
    output = tmp_path / "store.tar.zst"
    output.write_bytes(b"another one")
    ran = rmqtool("evidence", golden("5.5.0-clean-basic"), "--output", output)
    assert ran.code == 5
    assert "already exists" in ran.err
    assert output.read_bytes() == b"another one"
    assert list(tmp_path.iterdir()) == [output]
