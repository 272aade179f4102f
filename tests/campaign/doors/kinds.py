"""The kinds of inputs, by the door that they come through; a seed and a number give the same one each time."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from rmqtool.report.own_file import HEAD_SIZE, OwnFile
from rmqtool.store import view
from tests.campaign.command import run
from tests.campaign.doors.bounds import Bounds, Ending, Input, json_of
from tests.campaign.doors.remote_inputs import make_remote_input
from tests.campaign.doors.schemas import make_schema_input
from tests.campaign.doors.stores import (
    MEMORY,
    PROPERTIES,
    VERSION,
    case_files,
    golden,
    made,
    tiny,
    with_config,
    write_files,
)
from tests.campaign.doors.texts import edited_bytes, edited_json
from tests.fuzz import whole_stores
from tests.fuzz.tiny_recipes import TINY

Make = Callable[[random.Random, Path], Input]
HUGE: Final = (1 << 31, 1 << 40, (1 << 44) - 4096, 1 << 62, (1 << 62) + 4096, (1 << 63) - 4096, (1 << 63) - 1, 1 << 63)
"""Offsets that files are named for: up to a log of 16 TiB, and beyond what 63 bits hold."""
READING: Final = (
    "info {} --format json",
    "info {}",
    "verify {} --threads 1 --format json",
    "verify {} --threads 1 --format json --broker-version 4.9.7",
    "verify {} --threads 1 --max-memory 100M --junit out/j.xml --sarif out/s.json",
    "verify {} --depth structure --format json",
    "forecast {} --format json --broker-version all",
    "forecast {} --from 4.9.7 --to 5.5.0 --format json",
    "dump {} --format jsonl --body hex --stale",
    "dump {} --reverse --limit 5 --body text",
    "dump {} --type consumequeue --format jsonl",
    "dump {} --type index --format jsonl",
    "dump {} --type config --format jsonl",
    "dump {} --pending --format jsonl",
    "dump {} --hex --limit 3",
    "dump {} --key k1 --format csv",
    "get {} --topic orders --queue-id 0 --queue-offset 0 --count 40 --format json",
    "get {} --topic orders --queue-id 1 --time 1700000000000 --format json",
    "get {} --topic orders --key k1 --format json",
    "get {} --topic orders --queue-id 0 --queue-offset 4611686018427387904 --format json",
    "stats {} --by topic --format json",
    "stats {} --by size --format csv",
    "search {} a --in properties --format jsonl",
    "search {} [0-9] --in body --format jsonl",
    "report {} --html out/page.html",
    "evidence {} --output out/bundle --format json",
    "diff {} --make-manifest out/manifest",
    "diff {} {} --as messages --format json",
    "extract {} --topic * --output out/new --format json",
    "merge {} --output out/merged --format json",
    "salvage {} --dry-run --format json",
    "salvage {} --export out/messages --dry-run",
    "salvage {} --output out/copy --accept-loss --yes --format json",
    "recover {} --dry-run --format json",
    "recover {} --full --output out/copy --accept-loss --yes --format json",
    "rebuild {} --dry-run --format json",
    "convert {} --queues rocksdb --dry-run --format json",
    "watch {} --once --from-start --state out/state --format jsonl",
    "watch {} --once --textfile out/metrics",
    "replay {} --to 127.0.0.1:1 --dry-run",
)
"""Command lines that leave the store alone."""
JUDGING: Final = tuple(
    line for line in READING if line.split()[0] in ("info", "verify", "forecast", "report", "recover")
)


def command(chosen: random.Random, lines: tuple[str, ...] = READING, store: str = "../store") -> list[str]:
    """One of the command lines about a store, from the working directory beside it."""
    words = chosen.choice(lines).split()
    return [("../" + word if word.startswith("out/") else word).replace("{}", store) for word in words]


def _json_where_asked(arguments: list[str]) -> Callable[[Ending], list[str]] | None:
    if arguments[-2:] != ["--format", "json"] and "json" not in arguments:
        return None

    def check(ending: Ending) -> list[str]:
        is_expected = ending.code in (0, 3) and not ending.signal
        return ["the output is no JSON"] if is_expected and json_of(ending) is None else []

    return check


def _reading(arguments: list[str], **more: Any) -> Input:
    return Input(arguments, check=_json_where_asked(arguments), **more)


def make_store_input(chosen: random.Random, folder: Path) -> Input:
    """A small store with edited, cut, missing and misnamed files, through every command that reads one."""
    files, _version = whole_stores.mutated(chosen.getrandbits(48))
    write_files(files, folder / "store")
    return _reading(command(chosen))


def make_offsets_input(chosen: random.Random, folder: Path) -> Input:
    """Files named for offsets of 16 TiB and 2^62, units and records that say such numbers, sparse files."""
    files = dict(tiny(chosen.choice(sorted(TINY)[:3])))
    shift = chosen.choice(HUGE)
    roll = chosen.random()
    for path in list(files):
        top, _, name = path.partition("/")
        if (top == "commitlog" and roll < 0.6) or (top == "consumequeue" and 0.3 < roll < 0.8):
            step = 4096 if top == "commitlog" else 20
            begin = int(name.rpartition("/")[2]) + shift // step * step
            files[f"{path.rpartition('/')[0]}/{begin:020d}"] = files.pop(path)
    if roll > 0.5:
        for _ in range(chosen.randrange(1, 6)):
            path = chosen.choice(
                [path for path in files if path.partition("/")[0] in ("commitlog", "consumequeue", "index")]
            )
            raw = bytearray(files[path])
            at = int(chosen.random() * max(1, len(raw.rstrip(b"\0")) - 8))
            raw[at : at + 8] = (shift + chosen.choice((-1, 0, 1)) & (1 << 64) - 1).to_bytes(8, "big")
            files[path] = bytes(raw)
    write_files(files, folder / "store")
    if roll < 0.1 or roll > 0.9:
        path = chosen.choice(sorted(files))
        if path != "lock":
            os.truncate(folder / "store" / path, chosen.choice((1 << 20, 1 << 31, 1 << 34, (1 << 31) - 1)))
    return _reading(command(chosen))


def make_config_input(chosen: random.Random, folder: Path) -> Input:
    """One or two configuration files of a broker, edited: depth, numbers of a megabyte, other types, cut texts."""
    files = dict(with_config())
    names = sorted(name for name in files if name.startswith("config/"))
    for _ in range(chosen.choice((1, 1, 2))):
        name = chosen.choice(names)
        files[name] = edited_json(chosen, files[name])
        if chosen.random() < 0.3:
            files[f"{name}.bak"] = edited_json(chosen, with_config()[name])
    write_files(files, folder / "store")
    return _reading(command(chosen))


def make_properties_input(chosen: random.Random, folder: Path) -> Input:
    """A broker's properties file, edited; what it says of paths leads nowhere that may be written."""
    write_files(tiny(), folder / "store")
    text = PROPERTIES.replace("=store", f"={folder}/store")
    lines = text.splitlines()
    for _ in range(chosen.choice((1, 1, 2, 4))):
        at = chosen.randrange(len(lines))
        name = lines[at].partition("=")[0]
        value = chosen.choice((
            "", "-1", "0", "1", "7", "9" * 30, "9" * 5000, "2147483647", "2147483648", "1e9", "true", "x" * 70_000,
            "\\u0000", "\\ud800", "\\u12", "a,b,c", "../..", "/dev/zero", "/proc/self", "/", "*", "1s 2s x", "\\",
        ))  # fmt: skip
        lines[at] = chosen.choice(
            (f"{name}={value}", f"{name} : {value}", f"{name}\\\n={value}", f"{name}", f"={value}")
        )
    raw = "\n".join(lines).encode("utf-8", "surrogatepass")
    raw = edited_bytes(chosen, raw) if chosen.random() < 0.3 else raw
    (folder / "out" / "broker.conf").write_bytes(raw)
    able = tuple(line for line in READING if line.split()[0] not in ("stats", "search", "diff", "merge", "watch"))
    arguments = [*command(chosen, able), "--broker-conf", "../out/broker.conf"]
    return _reading(arguments)


_PLANNERS: Final = {"recover crashed": "recover", "salvage bad record": "salvage", "rebuild no queue": "rebuild"}


def make_plan_input(chosen: random.Random, folder: Path) -> Input:
    """A saved plan, edited or of another program, that is applied or saved over."""
    case = chosen.choice(sorted(_PLANNERS))
    name = _PLANNERS[case]
    write_files(case_files(case), folder)
    plan, seed, roll = folder / "out" / "plan", chosen.getrandbits(48), chosen.random()

    def setup() -> None:
        run(name, folder / "store", "--broker-version", VERSION, "--plan", plan)
        _edit_own(random.Random(seed), plan)

    line = ["--apply", "../out/plan", "--yes"] if roll < 0.7 else ["--plan", "../out/plan"]
    arguments = [name, "../store", *line, "--format", "json"]
    if roll < 0.7:
        return Input(arguments, may_write=("out", "store"), setup=setup)
    return Input([*arguments, "--broker-version", VERSION], setup=setup, check=_foreign_stays(folder, OwnFile.PLAN))


_STATES: Final = {
    OwnFile.VERIFY_STATE: "verify {} --threads 1 --format json --state ../out/plan",
    OwnFile.WATCH_STATE: "watch {} --once --from-start --format jsonl --state ../out/plan",
    OwnFile.METRICS: "watch {} --once --format jsonl --textfile ../out/plan",
    OwnFile.MANIFEST: "diff {} --format json --make-manifest ../out/plan",
}


def make_state_input(chosen: random.Random, folder: Path) -> Input:
    """What an earlier run left for the next one, edited or of another program."""
    write_files(tiny(chosen.choice(("tiny", "tiny-crashed"))), folder / "store")
    kind = chosen.choice(sorted(_STATES, key=lambda own: own.name))
    path, seed = folder / "out" / "plan", chosen.getrandbits(48)
    words = _STATES[kind].split()

    def setup() -> None:
        run(*[{"{}": folder / "store", "../out/plan": path}.get(word, word) for word in words])
        _edit_own(random.Random(seed), path)

    arguments = ["../store" if word == "{}" else word for word in words]
    return Input(arguments, setup=setup, check=_foreign_stays(folder, kind))


def _edit_own(chosen: random.Random, path: Path) -> None:
    """Edit the file; a copy of what it is now lies beside it."""
    raw = path.read_bytes() if path.exists() else b"{}"
    roll = chosen.random()
    if roll < 0.6:
        edited = edited_json(chosen, raw)
        # Where the first bytes are not those of the tool any more, nothing behind them is read.
        raw = edited if chosen.random() < 0.3 or not raw.startswith(b"{") else raw[:40] + edited[40:]
    elif roll < 0.9:
        raw = raw[:40] + edited_bytes(chosen, raw[40:])
    else:
        raw = chosen.choice(
            (b"", b"#!/bin/sh\n", b"PK\x03\x04", b"{}", b"[]", b'{"command": 1}', raw[: chosen.randrange(60)])
        )
    path.write_bytes(raw)
    path.with_name("copy").write_bytes(raw)


def _foreign_stays(folder: Path, kind: OwnFile) -> Callable[[Ending], list[str]]:
    def check(ending: Ending) -> list[str]:
        copy, now = folder / "out" / "copy", folder / "out" / "plan"
        if not copy.exists():
            return ["was not made"]
        before, after = copy.read_bytes(), now.read_bytes() if now.exists() else None
        if before != after and (ending.code in (2, 4, 5) or not kind._start.match(before[:HEAD_SIZE])):
            return [f"exit {ending.code}, and the file of somebody else is another one"]
        return []

    return check


def make_manifest_input(chosen: random.Random, folder: Path) -> Input:
    """The manifest of a store to compare with, edited."""
    write_files(tiny("tiny-crashed"), folder / "store")
    raw = made("diff", chosen.choice(("tiny", "tiny-crashed")), "--make-manifest", "{folder}/result")
    (folder / "out" / "manifest").write_bytes(edited_bytes(chosen, raw))
    return _reading(["diff", "../store", "--manifest", "../out/manifest", "--format", "json"])


@cache
def _members(recipe: str) -> Mapping[str, bytes]:
    import zstandard

    raw = zstandard.ZstdDecompressor().stream_reader(made("evidence", recipe, "--output", "{folder}/result")).read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def make_bundle_input(chosen: random.Random, folder: Path) -> Input:
    """A support bundle: edited bytes, edited members with right digests, members that no bundle has."""
    import zstandard

    recipe = chosen.choice(("tiny", "tiny-crashed", "tiny-delay"))
    roll = chosen.random()
    if roll < 0.3:
        raw = edited_bytes(chosen, made("evidence", recipe, "--output", "{folder}/result"))
    else:
        members = dict(_members(recipe))
        manifest = json.loads(members.pop("manifest.json"))
        del members["manifest.blake2b"]
        for _ in range(chosen.choice((0, 1, 2))):
            name = chosen.choice(sorted(members))
            members[name] = (edited_json if name.endswith(".json") else edited_bytes)(chosen, members[name])
        if roll < 0.9:
            for number, file in enumerate(manifest["files"]):
                content = members.get(f"files/{number}")
                file["digest"] = "" if content is None else blake2b(content, digest_size=16).hexdigest()
            texts = {name: text for name, text in members.items() if not name.startswith("files/")}
            manifest["texts"] = {name: blake2b(text, digest_size=16).hexdigest() for name, text in texts.items()}
        text = json.dumps(manifest).encode()
        text = edited_json(chosen, text) if chosen.random() < 0.7 else text
        members["manifest.json"] = text
        members["manifest.blake2b"] = blake2b(text, digest_size=16).hexdigest().encode()
        archive = _archive(chosen, members)
        archive = edited_bytes(chosen, archive) if roll > 0.95 else archive
        raw = zstandard.compress(archive)
    (folder / "out" / "bundle").write_bytes(raw)
    name = chosen.choice(("verify", "forecast"))
    return _reading([name, "../out/bundle", "--format", "json"])


def _archive(chosen: random.Random, members: Mapping[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(
        fileobj=raw, mode="w", format=chosen.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT))
    ) as archive:
        order = list(members.items())
        if chosen.random() < 0.1:
            chosen.shuffle(order)
        odd = chosen.randrange(len(order)) if chosen.random() < 0.2 else -1
        for number, (name, content) in enumerate(order):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if number == odd:
                info.name = chosen.choice((name, "../x", "/etc/x", "files/../../x", "files/999999", "a" * 90, name))
                info.type = chosen.choice((tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
                                           tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE, tarfile.DIRTYPE))  # fmt: skip
                info.linkname = "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return raw.getvalue()


_DATABASES: Final = {
    "5.5.0-rocksdb-cq": "consumequeue", "5.5.0-clean-basic": "rocksdbstore", "broker-5.5.0-pop": "rocksdbstore",
    "broker-5.5.0-timer": "rocksdbstore",
}  # fmt: skip
_OF_DATABASES: Final = (
    "info {} --format json", "verify {} --threads 1 --format json", "forecast {} --format json",
    "report {} --html out/p.html",
    "dump {} --type rocksdbstore --format jsonl", "dump {} --type consumequeue --format jsonl", "rebuild {} --dry-run",
    "get {} --topic Audit --queue-id 0 --queue-offset 0 --count 40 --format json", "recover {} --dry-run --format json",
    "dump {} --pop --format jsonl", "evidence {} --output out/bundle", "convert {} --queues file --dry-run",
)  # fmt: skip


def make_rocksdb_input(chosen: random.Random, folder: Path) -> Input:
    """A RocksDB database with edited, cut, swapped and missing files: the library refuses it, or ends its process."""
    name = chosen.choice(sorted(_DATABASES))
    files = dict(golden(name))
    own = [path for path in files if any(path.startswith(f"{top}/") for top in ("consumequeue", "rocksdbstore"))]
    own = [path for path in own if path.endswith((".sst", ".log", "CURRENT")) or "MANIFEST" in path]
    contents = tuple(files[path] for path in own)
    for _ in range(chosen.choice((1, 1, 2))):
        path = chosen.choice(own)
        if chosen.random() < 0.05:
            files.pop(path, None)
        else:
            files[path] = edited_bytes(chosen, files.get(path, b""), contents)
    write_files(files, folder / "store")
    return _reading(command(chosen, _OF_DATABASES), bounds=Bounds(cpu_seconds=15))


def make_changing_input(chosen: random.Random, folder: Path) -> Input:
    """Files that grow, shrink, vanish, come or become another thing between two reads."""
    store = folder / "store"
    write_files(tiny(chosen.choice(("tiny", "tiny-crashed", "tiny-delay"))), store)
    paths = sorted(path for path in store.rglob("*") if path.name != "lock")
    steps = {
        chosen.randrange(1, 60): (chosen.choice(paths), chosen.randrange(8), chosen.getrandbits(32)) for _ in range(3)
    }

    def setup() -> None:
        count = 0

        def change() -> None:
            nonlocal count
            count += 1
            if count in steps:
                _change(*steps[count])

        for owner, name in ((view.DirectoryView, "open"), (view.DirectoryView, "list"), (view.DirectoryView, "stat")):
            _hook(owner, name, change)
        _hook(os, "pread", change)

    return _reading(command(chosen), own_changes=True, setup=setup)


def _hook(owner: Any, name: str, before: Callable[[], None]) -> None:
    real = getattr(owner, name)

    def hooked(*arguments: Any, **named: Any) -> Any:
        before()
        return real(*arguments, **named)

    setattr(owner, name, hooked)


def _change(path: Path, how: int, number: int) -> None:
    try:
        is_file = stat.S_ISREG(path.lstat().st_mode)
        if how == 0 and is_file:
            os.truncate(path, path.stat().st_size + number % 9000)
        elif how == 1 and is_file:
            os.truncate(path, number % (path.stat().st_size + 1))
        elif how == 2:
            shutil.rmtree(path) if not is_file else path.unlink()
        elif how == 3 and is_file:
            content = path.read_bytes()
            path.write_bytes(content[number % (len(content) + 1) :] + bytes(100))
        elif how == 4:
            path.rename(path.with_name(f"{number:020d}"))
        elif how == 5:
            target = path.with_name(f"{number:020d}")
            (path.parent if is_file else path).joinpath(target.name).write_bytes(bytes(number % 5000))
        elif how == 6:
            shutil.rmtree(path) if not is_file else path.unlink()
            path.symlink_to(path.name)
        else:
            path.replace(path.with_name("moved"))
            path.mkdir()
    except OSError:
        pass  # an earlier change took it away


def make_link_input(chosen: random.Random, folder: Path) -> Input:
    """Links that loop, lead out or to nothing, in place of files and directories; files that nobody may read."""
    store = folder / "store"
    write_files(with_config(), store)
    paths = sorted(store.rglob("*"))
    deny = chosen.random() < 0.4
    for _ in range(chosen.choice((1, 1, 2, 4))):
        path = chosen.choice([store, *paths] if deny else paths)
        try:
            if deny:
                path.chmod(chosen.choice((0, 0o111, 0o222, 0o444)))
                continue
            target = chosen.choice((
                path.name, "../" + path.parent.name, "/", "/proc/self/fd", "absent", ".", "..", "a" * 255,
                str(chosen.choice(paths)), f"{folder}/out/loop", f"{folder}/home", "/dev/null",
            ))  # fmt: skip
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            path.symlink_to(target)
        except OSError:
            continue
    (folder / "out" / "loop").symlink_to("loop")
    if not deny:
        return _reading(command(chosen))
    for name in (".", "work", "tmp", "home", "out"):
        os.chown(folder / name, 65534, 65534)

    def setup() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    return _reading(command(chosen), setup=setup if os.geteuid() == 0 else None)


def make_name_input(chosen: random.Random, folder: Path) -> Input:
    """Topics of 255 bytes and of odd bytes, and paths as long as the system lets them be."""
    files = dict(tiny())
    name = chosen.choice((
        b"t" * 255, b"t" * 127, b"t" * 128, b"\xff" * 255, "ä".encode() * 127, b"..", b"a\nb", b"\x1b[31m",
        b"%RETRY%" + b"g" * 248, b"\xe2\x80\xae" * 80, b"=cmd|' /C calc'!A0", b"-rf", b"*", b"a b", b"#",
        b"\xed\xa0\x80", b"CON", b"t" * 254 + b"\xff",
    ))  # fmt: skip
    text = os.fsdecode(name)
    renamed = {path.replace("/orders/", f"/{text}/"): content for path, content in files.items()}
    if chosen.random() < 0.5:
        topics = json.loads(renamed["config/topics.json"])
        table = topics["topicConfigTable"]
        table[name.decode("utf-8", "replace")] = {**table["orders"], "topicName": name.decode("utf-8", "replace")}
        renamed["config/topics.json"] = json.dumps(topics).encode()
    if chosen.random() < 0.5:
        for path in [path for path in renamed if path.startswith("commitlog/")]:
            renamed[path] = renamed[path].replace(b"\x06orders", b"\x06" + (name + b"xxxxxx")[:6])
    root = folder / "store"
    store = "../store"
    if chosen.random() < 0.4:
        length = chosen.choice((3500, 3900, 4000, 4050, 4080)) - len(os.fspath(root))
        parts = ["d" * 200] * (length // 201) + ["e" * max(1, length % 201)]
        descriptor = _deep_directory(root, parts)
        _write_below(descriptor, renamed)
        os.close(descriptor)
        store = "/".join(["../store", *parts])
    else:
        write_files(renamed, root)
    arguments = command(chosen, store=store)
    return _reading([text if word == "orders" else word for word in arguments])


def _deep_directory(root: Path, parts: list[str]) -> int:
    """A directory whose path may be longer than one call takes."""
    root.mkdir()
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for part in parts:
        os.mkdir(part, dir_fd=descriptor)
        inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    return descriptor


def _write_below(top: int, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        *folders, name = path.split("/")
        descriptor = os.dup(top)
        try:
            for part in folders:
                if not os.access(part, os.F_OK, dir_fd=descriptor):
                    os.mkdir(part, dir_fd=descriptor)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=descriptor)
            os.write(file, content)
            os.close(file)
        except OSError:
            pass
        finally:
            os.close(descriptor)


def make_append_input(chosen: random.Random, folder: Path) -> Input:
    """Messages as JSON lines, edited, that are appended to a store or to a new one."""
    rows = made_rows().splitlines()
    picked = chosen.sample(rows, min(len(rows), chosen.choice((1, 1, 2, 4))))
    lines = [edited_json(chosen, row) if chosen.random() < 0.6 else row for row in picked]
    raw = b"\n".join(lines)
    raw = edited_bytes(chosen, raw) if chosen.random() < 0.2 else raw
    (folder / "out" / "rows").write_bytes(raw)
    arguments = ["append", "../store", "--from", "../out/rows", "--format", "jsonl"]
    if chosen.random() < 0.3:
        return Input([*arguments, "--create"], may_write=("out", "store"))
    write_files(tiny("tiny"), folder / "store")
    return Input(arguments, may_write=("out", "store"))


@cache
def made_rows() -> bytes:
    """The rows of a store, as `append` takes them."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        write_files(tiny("tiny-delay"), Path(name) / "store")
        return run("dump", Path(name) / "store", "--raw", "--body", "base64", "--format", "jsonl").output.encode()


def make_foreign_input(chosen: random.Random, folder: Path) -> Input:
    """A single file or a whole store in a directory of somebody else, and results that may not be written there."""
    store = folder / "store"
    write_files(tiny(), store)
    for name in (".", "work", "tmp", "home", "out"):
        os.chown(folder / name, 65534, 65534)
    target = chosen.choice(sorted(path for path in store.rglob("*") if path.is_file()))
    if chosen.random() < 0.7:
        target.chmod(chosen.choice((0o444, 0o600, 0o000, 0o644)))
        target.parent.chmod(chosen.choice((0o755, 0o711, 0o700, 0o555)))
    if chosen.random() < 0.3:
        (folder / "out").chmod(0o555)
        os.chown(folder / "out", 0, 0)
    elif chosen.random() < 0.2:
        (folder / "tmp").chmod(0o555)
        os.chown(folder / "tmp", 0, 0)
    if chosen.random() < 0.5:
        lines = (
            "dump {} --format jsonl",
            "dump {} --hex --limit 3",
            "patch {} --at 0 --set magic=1 --yes",
            "salvage ../store --from {} --dry-run",
        )
        arguments = command(chosen, lines, f"../{target.relative_to(folder)}")
    else:
        lines = (
            "recover {} --yes",
            "rebuild {} --yes",
            "salvage {} --yes",
            "undo {} --yes",
            "append {} --topic orders --body x",
        )
        arguments = command(chosen, (*lines, *READING))
    own_store = arguments[0] in ("recover", "rebuild", "salvage", "patch", "append")
    if own_store and chosen.random() < 0.5:
        for path in (store, *store.rglob("*")):
            os.chown(path, 65534, 65534)

    def setup() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    may_write = ("out", "store") if own_store else ("out",)
    return Input(arguments, may_write=may_write, setup=setup if os.geteuid() == 0 else None)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A door.

    Attributes:
        share: of a thousand inputs, how many come through it.
        about: for the list of kinds.
    """

    make: Make
    share: int
    about: str


KINDS: Final[dict[str, Kind]] = {
    "stores": Kind(make_store_input, 130, "files of a store: edited, cut, missing, swapped, misnamed"),
    "offsets": Kind(make_offsets_input, 60, "offsets of 16 TiB and 2^62 in names and fields, sparse files"),
    "config": Kind(make_config_input, 120, "`config/*`: depth of 100,000, numbers of a megabyte, other types"),
    "properties": Kind(make_properties_input, 40, "the broker's properties file"),
    "plans": Kind(make_plan_input, 70, "saved plans, edited or of another program"),
    "states": Kind(make_state_input, 90, "state files, metrics and manifests that are replaced"),
    "manifests": Kind(make_manifest_input, 40, "manifests to compare with"),
    "bundles": Kind(make_bundle_input, 70, "support bundles, with right digests too"),
    "rocksdb": Kind(make_rocksdb_input, 40, "RocksDB files, on which the library refuses or ends its process"),
    "changing": Kind(make_changing_input, 50, "files that grow, vanish or become links while they are read"),
    "links": Kind(make_link_input, 40, "links that loop or lead out, files that may not be read"),
    "names": Kind(make_name_input, 30, "topics of 255 bytes and of odd bytes, paths near PATH_MAX"),
    "schemas": Kind(make_schema_input, 110, "Avro schemas and protobuf descriptors, over bodies that ask for much"),
    "remote": Kind(make_remote_input, 50, "an S3 server that lies: changing listings, cut answers, errors, redirects"),
    "append": Kind(make_append_input, 30, "messages as JSON lines"),
    "foreign": Kind(make_foreign_input, 30, "a file in a directory of somebody else"),
}
