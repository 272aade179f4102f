"""Parts that are compared elsewhere give the same: work, parts and results go there and back as bytes."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rmqtool.compare.log_side import Terms
from rmqtool.compare.manifest import ManifestLog, write_manifest
from rmqtool.compare.run import ComparedStore, CompareOptions, compare
from rmqtool.scan.runner import Item, Result
from tests.commands.transcripts import rmqtool
from tests.compare.stores import laid_out, store_of, subject
from tests.compare.test_random_edits import edited, some_messages
from tests.conftest import Unpacked


class PicklingRunner:
    """Passes everything on as another machine would get it."""

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            yield _sent(_sent(work)(_sent(item)))


def _sent(value: Item) -> Item:
    found: Item = pickle.loads(pickle.dumps(value))  # noqa: S301 - what was pickled here
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_runner_finds_what_threads_find(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    messages = some_messages(chance)
    stores = [store_of(laid_out(each)) for each in (messages, edited(messages, chance))]
    options = CompareOptions(limit=1000, threads=2)
    here = compare(subject(stores[0]), subject(stores[1]), Terms(), options)
    there = compare(subject(stores[0]), subject(stores[1]), Terms(), options, runner=PicklingRunner())
    assert there.as_json() == here.as_json()
    write_manifest(tmp_path / "m", subject(stores[1]), "test", Terms(), has_rows=seed % 2 == 0)
    log = ManifestLog(tmp_path / "m")
    far = ComparedStore("m", "manifest", log, log.description.facts, log.description.totals)
    by_manifest = [
        compare(subject(stores[0]), far, Terms(), options, runner=runner) for runner in (None, PicklingRunner())
    ]
    assert by_manifest[0].as_json() == by_manifest[1].as_json()


@pytest.mark.spark
def test_diff_on_spark(golden: Unpacked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = golden("5.5.0-damage-base").parent
    golden("5.5.0-expired-head")
    monkeypatch.chdir(folder)
    words = ["5.5.0-damage-base", "5.5.0-expired-head", "--format", "json"]
    here, there = (rmqtool("diff", *words, *more) for more in ([], ["--master", "local[2]"]))
    assert there.code == here.code == 3
    assert json.loads(there.out) == json.loads(here.out)


def test_a_manifest_is_not_made_on_spark(golden: Unpacked, tmp_path: Path) -> None:
    ran = rmqtool("diff", "--make-manifest", tmp_path / "m", golden("5.5.0-crashed"), "--master", "local[2]")
    assert ran.code == 2
    assert not (tmp_path / "m").exists()
