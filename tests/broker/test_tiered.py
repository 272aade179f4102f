"""A tiered store in files that the broker's own classes wrote: what verify says of it, and what they then serve."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.store.config.tiered import METADATA
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.toolchain import java_command
from tests.broker.versions import version_named
from tests.conftest import Unpacked
from tests.repair.dledger_stores import records_of
from tests.sides.test_tiered import verified

PROGRAM = Path(__file__).parent / "programs" / "TieredStore.java"
TOPIC, COUNT, SEGMENT_SIZE = "TopicTest", 40, 10_000


def asked(version: str, tmp_path: Path, what: str, *arguments: object) -> list[list[str]]:
    """For each store: what each queue offset gives, as `queue offset@physical offset/CRC` or `fails`."""
    command = java_command(version_named(version), str(PROGRAM), tmp_path)
    words = [TOPIC, 0, SEGMENT_SIZE, what, *arguments]
    ran = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, check=True, timeout=300)
    return [[text.partition(":")[2] for text in line.split()] for line in ran.stdout.splitlines()]


def broken(store: Path, log: list[Path], queue: list[Path]) -> None:
    for name in (METADATA, f"{METADATA}.bak"):
        (store / name).write_text("{")


def without_segment(store: Path, log: list[Path], queue: list[Path]) -> None:
    log[1].unlink()


def short_segment(store: Path, log: list[Path], queue: list[Path]) -> None:
    os.truncate(log[-1], log[-1].stat().st_size - 5)


def garbage(store: Path, log: list[Path], queue: list[Path]) -> None:
    with log[0].open("r+b") as file:
        file.seek(100)
        file.write(b"\1\2\3\4\5\6")


def zeroed_unit(store: Path, log: list[Path], queue: list[Path]) -> None:
    with queue[0].open("r+b") as file:
        file.write(bytes(20))


DAMAGES: dict[Callable[[Path, list[Path], list[Path]], None], str] = {
    broken: "tiered.metadata-broken",
    without_segment: "tiered.missing-segment",
    short_segment: "tiered.short-segment",
    garbage: "tiered.bad-record",
    zeroed_unit: "tiered.wrong-unit",
}


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_damage_that_verify_finds_is_damage_to_the_broker(
    judge_of: Callable[[str], Judge], golden: Unpacked, tmp_path: Path, version: str
) -> None:
    del judge_of
    log = min((golden("5.5.0-clean-basic") / "commitlog").iterdir())
    records = tmp_path / "records"
    chosen = [bytes(record) for record in records_of(log.read_bytes())[:COUNT]]
    for number, record in enumerate(chosen):
        chosen[number] = record[:20] + number.to_bytes(8, "big") + record[28:]
    records.write_bytes(b"".join(chosen))
    sound = tmp_path / "sound"
    (sound / "commitlog").mkdir(parents=True)
    (written,) = asked(version, tmp_path, "write", sound, records)
    assert [text.partition("@")[0] for text in written] == [str(number) for number in range(COUNT)]
    assert verified(sound) == (set(), [])
    stores = []
    for damage, kind in DAMAGES.items():
        store = copy_store(sound, tmp_path / damage.__name__)
        log_files, queue_files = (
            sorted(store.glob(f"tiered/*/broker-a/{TOPIC}/0/{name}/*"), key=lambda path: path.name[-20:])
            for name in ("COMMIT_LOG", "CONSUME_QUEUE")
        )
        damage(store, log_files, queue_files)
        assert kind in {found for found, _ in verified(store)[1]}, damage.__name__
        stores.append(store)
    answers = asked(version, tmp_path, "read", *stores)
    served = {
        damage: (len(answer), sum(text != right for text, right in zip(answer, written, strict=False)))
        for damage, answer in zip(DAMAGES, answers, strict=True)
    }
    assert served[broken] == (0, 0)
    assert served[without_segment][0] == COUNT
    assert served[without_segment][1] > 1
    assert [served[damage] for damage in (short_segment, garbage, zeroed_unit)] == [(COUNT, 1)] * 3
