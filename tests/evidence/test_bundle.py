"""A bundle gives the store's own answers, and holds no body, key, tag or property value of it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from rmqtool.evidence.bundle import BundleError, unpack
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.redact_record import KEPT_PROPERTIES
from rmqtool.formats.java_text import java_hash_of_bytes
from tests import golden_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

SAMPLE = ("4.9.7-properties", "5.5.0-damage-zero-hole-abort", "5.5.0-v2", "5.5.0-damage-cq-only-file-zero-abort")
SHORTEST = 6
"""Bytes from which a text does not occur by chance."""


def written(store: Path, bundle: Path) -> dict[str, object]:
    ran = rmqtool("evidence", store, "--output", bundle)
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


def texts_of(name: str, store: Path) -> Iterator[bytes]:
    """Bodies, keys, tags and property values that a broker read in the store."""
    for record in golden_stores.manifest(name).records:
        for key, value in record.properties.items():
            if key.encode() not in KEPT_PROPERTIES and key != "__CRC32#":
                yield from (text.encode() for text in ([value, *value.split()] if key == "KEYS" else [value]))
        size = golden_stores.settings(name).commitlog_file_size
        start = record.at // size * size
        raw = (store / "commitlog" / f"{start:020d}").read_bytes()[record.at - start :][: record.size]
        at = raw.rfind(record.topic.encode() + b"\0") if not record.body_crc_bad else -1
        if at > 0 and not record.topic.startswith(("RMQ_SYS", "rmq_sys")):
            yield raw[at - 1 - record.body_length : at - 1][:200].strip(b"\0")


@pytest.mark.parametrize("name", SAMPLE)
def test_bundle_answers_as_the_store_and_holds_nothing_a_customer_wrote(name: str, tmp_path: Path) -> None:
    store = golden_stores.unpack(name, tmp_path)
    manifest = written(store, tmp_path / "bundle")
    assert manifest["differences"] == []
    content = contents(tmp_path / "bundle")
    topics = {record.topic.encode() for record in golden_stores.manifest(name).records}
    texts = {text for text in texts_of(name, store) if len(text.replace(b" ", b"")) >= SHORTEST and text not in topics}
    assert texts
    assert [text for text in sorted(texts) if text in content and not any(text in topic for topic in topics)] == []


def test_verify_and_forecast_of_a_bundle_say_what_they_say_of_the_store(tmp_path: Path) -> None:
    store = golden_stores.unpack("5.5.0-damage-zero-hole-abort", tmp_path)
    written(store, tmp_path / "bundle")
    for command in ("verify", "forecast"):
        of_store = rmqtool(command, store)
        of_bundle = rmqtool(command, tmp_path / "bundle")
        assert of_store.out == of_bundle.out
        assert of_store.code == of_bundle.code
        assert "the answer comes from the bundle" in of_bundle.err


@pytest.mark.parametrize("text", ["k1", "TagA", "order-17", "键值", "x" * 300, "😀"])
def test_other_text_has_the_same_hash_and_length(text: str) -> None:
    other = Pseudonyms().same_hash(text.encode())
    assert other != text.encode()
    assert len(other) == len(text.encode())
    assert java_hash_of_bytes(other) == java_hash_of_bytes(text.encode())


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a//b", "a/./b", "a\0b", ""])
def test_path_that_leads_out_of_the_store_is_refused(path: str, tmp_path: Path) -> None:
    store = golden_stores.unpack("5.5.0-damage-zero-hole-abort", tmp_path)
    manifest = written(store, tmp_path / "bundle")
    files = manifest["files"]
    assert isinstance(files, list)
    files[0]["path"] = path
    forged = bundle_of(tmp_path / "forged", {"manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(BundleError, match="no store has"):
        unpack(forged, new_folder(tmp_path))


def test_link_bomb_and_cut_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("files/0")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    raw = link.tobuf(tarfile.USTAR_FORMAT) + bytes(1024)
    (tmp_path / "link").write_bytes(zstandard.compress(raw))
    with pytest.raises(BundleError, match="not a plain file"):
        unpack(tmp_path / "link", new_folder(tmp_path))
    bomb = bundle_of(tmp_path / "bomb", {"files/0": bytes(1 << 22)})
    with pytest.raises(BundleError, match="larger than allowed"):
        unpack(bomb, new_folder(tmp_path), 1 << 20)
    (tmp_path / "cut").write_bytes(bomb.read_bytes()[:-8])
    with pytest.raises(BundleError):
        unpack(tmp_path / "cut", new_folder(tmp_path))


def bundle_of(path: Path, members: dict[str, bytes]) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    path.write_bytes(zstandard.compress(raw.getvalue()))
    return path


def new_folder(tmp_path: Path) -> Path:
    folder = tmp_path / f"unpacked-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return folder


def test_a_file_that_exists_is_kept(golden: Unpacked, tmp_path: Path) -> None:
    output = tmp_path / "store.tar.zst"
    output.write_bytes(b"another one")
    ran = rmqtool("evidence", golden("5.5.0-clean-basic"), "--output", output)
    assert ran.code == 5
    assert "already exists" in ran.err
    assert output.read_bytes() == b"another one"
    assert list(tmp_path.iterdir()) == [output]


def test_other_answers_are_named_and_are_findings(golden: Unpacked, tmp_path: Path) -> None:
    """Of the log of DLedger only the size is in a bundle."""
    ran = rmqtool("evidence", golden("broker-5.3.3-dledger"), "--output", tmp_path / "store.tar.zst")
    assert ran.code == 3, ran.err
    assert (tmp_path / "store.tar.zst").exists()
