"""How fast two stores are compared, next to `cmp` and to the checksum alone over the same bytes.

Run `python -m benchmarks.diff`; `--folder` says where 3 GiB may lie for its time. The bytes come from the page cache.
Compared are equal copies; copies that differ in one record of each file, so that no file can be passed over as a whole;
and logs in which no message lies at the same place, so that each has to be looked for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.logs import log_files, write_log
from benchmarks.results import machine, table, write_section
from benchmarks.scan import best, over_blocks, run_python, walk_all
from rmqtool.compare.log_side import StoreLog, Terms
from rmqtool.compare.manifest import ManifestLog, write_manifest
from rmqtool.compare.metadata import StoreMetadata
from rmqtool.compare.result import Comparison
from rmqtool.compare.run import ComparedStore, CompareOptions, compare
from rmqtool.scan.checksum import crc32
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory

COMMAND = "python -m benchmarks.diff"
BODY_LENGTHS = {"100 B": 100, "1 KiB": 1 << 10, "64 KiB": 64 << 10}
FILE_COUNT, FILE_SIZE = 4, 128 << 20


def subject(store: Path) -> ComparedStore:
    return ComparedStore(str(store), "store", StoreLog(survey(open_directory(store)), compiled=True), StoreMetadata({}))


def compared(a: Path, b: Path, threads: int = 1) -> Comparison:
    return compare(subject(a), subject(b), Terms(), CompareOptions(threads=threads))


def make_manifest(store: Path, path: Path) -> int:
    return write_manifest(path, subject(store), "benchmark", Terms(), has_rows=True).totals.messages


def with_manifest(store: Path, path: Path) -> Comparison:
    log = ManifestLog(path)
    far = ComparedStore("manifest", "manifest", log, log.description.facts, log.description.totals)
    return compare(subject(store), far, Terms(), CompareOptions(threads=1))


def flip_in_each(store: Path) -> None:
    """Another byte in a body in the middle of each file."""
    for path in (store / "commitlog").iterdir():
        with path.open("r+b") as file:
            file.seek(FILE_SIZE // 2)
            byte = file.read(1)
            file.seek(FILE_SIZE // 2)
            file.write(bytes([byte[0] ^ 0xFF]))


def figures(folder: Path) -> list[dict[str, str]]:
    return [row_of(folder, label, body_length) for label, body_length in BODY_LENGTHS.items()]


def row_of(folder: Path, label: str, body_length: int) -> dict[str, str]:
    """The figures of one body length."""
    master, slave, shifted = (folder / name for name in ("master", "slave", "shifted"))
    count = write_log(master / "commitlog", FILE_COUNT, FILE_SIZE, body_length)
    shutil.copytree(master, slave)
    files = [list(log_files(store / "commitlog")) for store in (master, slave)]
    assert compared(master, slave).is_equal
    manifest = folder / "manifest"
    cmp, checksum, walk, equal, made, by_manifest = best(
        lambda: [
            subprocess.run(["cmp", file, slave / "commitlog" / file.name], check=True)
            for file in (master / "commitlog").iterdir()
        ],
        lambda: [over_blocks(each, crc32) for each in files],
        lambda: walk_all(files[0], compiled=True),
        lambda: compared(master, slave),
        lambda: make_manifest(master, manifest),
        lambda: with_manifest(slave, manifest),
        clock=_processor_seconds,
    )
    flip_in_each(slave)
    (flipped,) = best(lambda: compared(master, slave), clock=_processor_seconds)
    assert compared(master, slave).differing.count == FILE_COUNT
    _, memory = run_python("-m", "rmqtool", "diff", str(master), str(slave), exit_code=3)
    shutil.rmtree(slave)
    write_log(shifted / "commitlog", FILE_COUNT, FILE_SIZE, body_length + 1)
    (elsewhere,) = best(lambda: compared(master, shifted), clock=_processor_seconds)
    size = 2 * FILE_COUNT * FILE_SIZE
    for store in (master, shifted):
        shutil.rmtree(store)
    return {
        "body": label,
        "equal ÷ cmp": f"{equal / cmp:.2f}",
        "equal ÷ CRC alone": f"{equal / checksum:.2f}",
        "equal ÷ walk of one": f"{equal / walk:.2f}",
        "a record a file differs ÷ CRC alone": f"{flipped / checksum:.2f}",
        "all differ ÷ CRC alone": f"{elsewhere / checksum:.2f}",
        "equal GB/s": f"{size / equal / 1e9:.1f}",
        "all differ, million messages/s": f"{2 * count / elsewhere / 1e6:.2f}",
        "making a manifest GB/s": f"{size / 2 / made / 1e9:.1f}",
        "with a manifest GB/s": f"{size / 2 / by_manifest / 1e9:.1f}",
        "manifest bytes a message": f"{manifest.stat().st_size / count:.1f}",
        "peak MiB": str(memory),
    }


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where the generated logs lie while it runs")
    facts = machine("numba", "numpy", "isal", "zstandard")
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as name:
        found = table(figures(Path(name)))
    print(found)
    about = f"""Two logs of {FILE_COUNT} files of {FILE_SIZE >> 20} MiB from the page cache, one thread, by processor
time. `cmp` and the checksum go over the bytes of both. Where all differ, the second log has bodies of one byte more, so
that no message lies where it lay and each is joined by its key. GB/s are bytes of both logs, of a manifest those of the
one log that is read.

"""
    write_section("diff", COMMAND, facts, about + found)


if __name__ == "__main__":
    main()
