"""A bundle is read as it was written, or refused with exit code 4: flipped bits, other members, forged manifests."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rmqtool.evidence.bundle import BundleError, BundleManifest, unpack, write_bundle
from rmqtool.evidence.store_copy import CopiedFile, Included
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

HOLE = "5.5.0-damage-zero-hole-abort"
HEALTHY = "5.5.0-clean-basic"
Manifest = dict[str, Any]


def made(store: Path, bundle: Path) -> Path:
    ran = rmqtool("evidence", store, "--output", bundle)
    assert ran.code == 0, ran.err
    return bundle


def members_of(bundle: Path) -> dict[str, bytes]:
    raw = zstandard.ZstdDecompressor().stream_reader(bundle.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def packed(path: Path, members: dict[str, bytes]) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    path.write_bytes(zstandard.compress(raw.getvalue()))
    return path


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def forged(bundle: Path, change: Callable[[Manifest, dict[str, bytes]], None]) -> Path:
    """Another bundle whose digests are right: made by somebody who knows how."""
    members = members_of(bundle)
    manifest = json.loads(members.pop("manifest.json"))
    del members["manifest.blake2b"]
    change(manifest, members)
    for number, file in enumerate(manifest["files"]):
        content = members.get(f"files/{number}")
        file["digest"] = "" if content is None else digest(content)
    manifest["texts"] = {name: digest(text) for name, text in members.items() if not name.startswith("files/")}
    raw = json.dumps(manifest).encode()
    members |= {"manifest.json": raw, "manifest.blake2b": digest(raw).encode()}
    return packed(bundle.with_name(f"forged-{len(list(bundle.parent.iterdir()))}"), members)


def tree_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def new_folder(place: Path) -> Path:
    folder = place / f"unpacked-{len(list(place.iterdir()))}"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("count", [60, pytest.param(1_500, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_changes_nothing(count: int, golden: Unpacked, tmp_path: Path) -> None:
    bundle = made(golden(HEALTHY), tmp_path / "bundle")
    raw, place = bundle.read_bytes(), tmp_path / "trials"
    place.mkdir()
    own = unpack(bundle, new_folder(place))
    tree = tree_of(place / "unpacked-0/store")
    generator = random.Random(34)
    refused = 0
    for _ in range(count):
        at = generator.randrange(8 * len(raw))
        other = bytearray(raw)
        other[at // 8] ^= 1 << at % 8
        (tmp_path / "other").write_bytes(other)
        folder = new_folder(place)
        try:
            assert unpack(tmp_path / "other", folder) == own
            assert tree_of(folder / "store") == tree
        except BundleError:
            refused += 1
    assert refused > 0.9 * count


@pytest.mark.parametrize("name", ["README.txt", "answers.json", "files/3", "manifest.json", "manifest.blake2b"])
def test_a_member_that_is_another_one_is_refused(name: str, golden: Unpacked, tmp_path: Path) -> None:
    members = members_of(made(golden(HEALTHY), tmp_path / "bundle"))
    assert members[name]
    with pytest.raises(BundleError, match="damaged"):
        unpack(packed(tmp_path / "other", {**members, name: members[name][:-1] + b"#"}), new_folder(tmp_path))
    rest = {other: content for other, content in members.items() if other != name}
    with pytest.raises(BundleError):
        unpack(packed(tmp_path / "less", rest), new_folder(tmp_path))


def test_what_is_written_is_read_wherever_its_last_member_ends(tmp_path: Path) -> None:
    """tar fills its last record with zeros, up to a record and the two blocks that end it."""
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    path = "config/topics.json"
    for blocks in range(1, tarfile.RECORDSIZE // tarfile.BLOCKSIZE + 1):
        content = b"x" * (blocks * tarfile.BLOCKSIZE)
        (store / path).write_bytes(content)
        file = CopiedFile(path, len(content), 0, "configuration", Included.REDACTED)
        manifest = BundleManifest(0, "", "", True, True, (), "ok", {}, (file,), ("config",))
        write_bundle(tmp_path / f"{blocks}", store, manifest, {})
        folder = new_folder(tmp_path)
        unpack(tmp_path / f"{blocks}", folder)
        assert (folder / "store" / path).read_bytes() == content


@pytest.mark.parametrize("more", [b"x", zstandard.compress(b"x"), zstandard.compress(bytes(1 << 20))])
def test_what_follows_the_last_member_is_refused(more: bytes, golden: Unpacked, tmp_path: Path) -> None:
    bundle = made(golden(HOLE), tmp_path / "bundle")
    bundle.write_bytes(bundle.read_bytes() + more)
    ran = rmqtool("verify", bundle)
    assert (ran.code, ran.out) == (4, "")


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a//b", "a/./b", "a\0b", "", "a\ud800b", "config/" + "a" * 256])
def test_path_that_no_store_has_is_refused(path: str, golden: Unpacked, tmp_path: Path) -> None:
    def change(manifest: Manifest, _members: dict[str, bytes]) -> None:
        manifest["files"][0]["path"] = path

    other = forged(made(golden(HOLE), tmp_path / "bundle"), change)
    with pytest.raises(BundleError, match="no store has"):
        unpack(other, new_folder(tmp_path))
    ran = rmqtool("verify", other)
    assert (ran.code, ran.out) == (4, "")


@pytest.mark.parametrize("field", ["path", "included"])
def test_half_a_character_anywhere_is_no_internal_error(field: str, golden: Unpacked, tmp_path: Path) -> None:
    def change(manifest: Manifest, _members: dict[str, bytes]) -> None:
        assert field in manifest["files"][0]
        manifest["files"][0][field] = "\ud800"

    ran = rmqtool("verify", forged(made(golden(HOLE), tmp_path / "bundle"), change))
    assert ran.code == 4
    assert "internal error" not in ran.err


def test_a_path_that_is_no_text_goes_both_ways(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(HOLE)
    folder = store / "consumequeue" / os.fsdecode(b"\xff\xfe")
    folder.mkdir()
    (folder / os.fsdecode(b"\xff")).write_bytes(b"x")
    ran = rmqtool("verify", made(store, tmp_path / "bundle"), "--format", "json")
    assert ran.code == rmqtool("verify", store).code
    assert "\\udcff" in ran.out


@pytest.mark.parametrize("field", ["size", "mtime_ns"])
@pytest.mark.parametrize("value", [-1, 0, 1, 1 << 41, 1 << 63, 1 << 100, -(1 << 100)])
def test_a_size_or_time_that_is_wrong_is_no_internal_error(
    field: str, value: int, golden: Unpacked, tmp_path: Path
) -> None:
    bundle = made(golden(HOLE), tmp_path / "bundle")
    count = len(json.loads(members_of(bundle)["manifest.json"])["files"])
    for number in range(count):

        def change(manifest: Manifest, _members: dict[str, bytes], number: int = number) -> None:
            manifest["files"][number][field] = value

        ran = rmqtool("verify", forged(bundle, change))
        assert ran.code in (3, 4)
        assert "internal error" not in ran.err


def test_a_log_under_another_path_is_refused(golden: Unpacked, tmp_path: Path) -> None:
    def change(manifest: Manifest, _members: dict[str, bytes]) -> None:
        for file in manifest["files"]:
            file["path"] = file["path"].replace("commitlog/", "config/")
        manifest["directories"].remove("commitlog")

    ran = rmqtool("verify", forged(made(golden(HEALTHY), tmp_path / "bundle"), change))
    assert (ran.code, ran.out) == (4, "")
    assert "not for its kind" in ran.err


@pytest.mark.parametrize("command", ["verify", "forecast"])
def test_two_answers_are_named_and_neither_is_given(command: str, golden: Unpacked, tmp_path: Path) -> None:
    """Nobody can see in the files of a bundle without its log that there were records."""

    def change(manifest: Manifest, members: dict[str, bytes]) -> None:
        for number, file in enumerate(manifest["files"]):
            if file["kind"] in ("commitlog", "consume queue", "index"):
                members.pop(f"files/{number}", None)

    bundle = made(golden(HEALTHY), tmp_path / "bundle")
    assert rmqtool(command, bundle).code == 0
    ran = rmqtool(command, forged(bundle, change))
    assert (ran.code, ran.out) == (4, "")
    assert "two answers, of which neither may be the store's" in ran.err
    assert "'OK" in ran.err


def test_link_bomb_and_cut_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("files/0")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    raw = link.tobuf(tarfile.USTAR_FORMAT) + bytes(1024)
    (tmp_path / "link").write_bytes(zstandard.compress(raw))
    with pytest.raises(BundleError, match="not a plain file"):
        unpack(tmp_path / "link", new_folder(tmp_path))
    bomb = packed(tmp_path / "bomb", {"files/0": bytes(1 << 22)})
    with pytest.raises(BundleError, match="larger than allowed"):
        unpack(bomb, new_folder(tmp_path), 1 << 20)
    (tmp_path / "cut").write_bytes(bomb.read_bytes()[:-8])
    with pytest.raises(BundleError):
        unpack(tmp_path / "cut", new_folder(tmp_path))


def test_a_bundle_of_another_version_says_so(golden: Unpacked, tmp_path: Path) -> None:
    def change(manifest: Manifest, _members: dict[str, bytes]) -> None:
        manifest["version"] = 1

    with pytest.raises(BundleError, match="a bundle of version 1; this rmqtool reads version 2"):
        unpack(forged(made(golden(HOLE), tmp_path / "bundle"), change), new_folder(tmp_path))
