"""Settings by the published classes: which names each version has, and what it holds for every form of a value."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.engine.rules.settings import read_settings, settings_of
from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge, setting_texts
from tests.broker.conftest import JudgeOf
from tests.broker.program import JudgeError
from tests.broker.setting_forms import REFUSED, all_differences, all_forms, differences, mixed_files
from tests.broker.versions import ROUTINE, VERSIONS
from tests.broker.whole import WholeBroker
from tests.conftest import Unpacked
from tests.life_stores import life_store

KINDS = {"String": "text"}
OFTEN = ("4.4.0", *ROUTINE)
SELDOM = tuple(version.name for version in VERSIONS if version.name not in OFTEN)


@pytest.mark.parametrize("version", [*OFTEN, *(pytest.param(name, marks=pytest.mark.slow) for name in SELDOM)])
def test_the_list_has_the_settings_of_the_classes(judge_of: JudgeOf, version: str) -> None:
    """A setting that a release adds is missed by nobody: each belongs into the list, with its effect."""
    classes = judge_of(version).setting_names()
    real = {name: types.split() for settings in classes.values() for name, types in settings.items()}
    ours = settings_of(version)
    assert real.keys() - ours.keys() == set()
    # Classes that were not published with the store are not here to be asked.
    groups = {ours[name].group for name in real}
    assert {name for name, setting in ours.items() if setting.group in groups} - real.keys() == set()
    for name, types in real.items():
        kinds = {KINDS.get(kind, kind) for kind in types}
        assert ours[name].kind in kinds or ("|" in ours[name].kind and "text" in kinds), (name, types)


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.3.3", "5.5.0"])
def test_forms_of_values_are_read_as_the_classes_read_them(judge_of: JudgeOf, version: str) -> None:
    """A part of what `python -m tests.broker.setting_forms` compares."""
    settings, chance = settings_of(version), random.Random(version)
    forms = chance.sample(list(all_forms()), 40)
    files = [form.file(settings.values()) for form in forms]
    files += [f"brokerName={text}\n".encode() for text in REFUSED]
    compared, different = differences(judge_of(version), [*files, *mixed_files(settings, 10, seed=1)])
    assert different == []
    assert compared > 40 * 150


@pytest.mark.slow
@pytest.mark.parametrize("version", [version.name for version in VERSIONS])
def test_every_form_of_every_setting_is_read_as_the_classes_read_it(judge_of: JudgeOf, version: str) -> None:
    compared, different = all_differences(judge_of(version))
    assert different == []
    assert compared > 100_000


def test_the_settings_of_an_old_file_are_those_of_the_old_broker(golden_copy: Unpacked, judge_of: JudgeOf) -> None:
    """4.4.0 reads the old names, and serves all; 5.5.0 with the same file does not start."""
    known = life_store("old-setting-names-4.4.0")
    texts = setting_texts(known.config)
    lines = "".join(f"{name}={text}\n" for name, text in texts.items()).encode()
    for version, size in (("4.4.0", 1048576), ("5.5.0", 1 << 30)):
        _, values = judge_of(version).applied_settings([b"", lines])
        held = {name: value for group in values.values() for name, value in group.items()}
        assert [held[name] for name in held if name.endswith("FileSizeCommitLog")] == [str(size)]
    path = golden_copy(known.name)
    assert starts(path, "4.4.0", texts) is True
    assert starts(path, "5.5.0", texts) is False
    served = judge_of("4.4.0").examine(path, known.config)["served"]["queues"]
    assert {queue["queueId"]: queue["max"] for queue in served if queue["topic"] == "T"} == {0: 15, 1: 15}
    assert real_start(judge_of("5.5.0"), golden_copy(known.name)) is False


@pytest.mark.parametrize(("version", "is_cut"), [("4.9.7", False), ("5.5.0", True)])
def test_a_store_whose_replicas_are_made_in_another_way_is_never_fully_checked(
    judge_of: JudgeOf, tmp_path: Path, version: str, *, is_cut: bool
) -> None:
    """The start of a newer broker after a crash cuts the log off at a confirmed offset that nobody wrote."""
    judge = judge_of(version)
    store = judge.open(tmp_path, {"mappedFileSizeCommitLog": 65536})
    store.put(*({"topic": "T", "queueId": 0, "body": bytes(4000), "properties": {"KEYS": "k"}} for _ in range(40)))
    store.wait_dispatched()
    store.halt()
    properties = {"mappedFileSizeCommitLog": "65536", "duplicationEnable": "true"}
    conf = broker_conf(properties, reads=read_settings(rules_for(version)))
    [row] = unsimulated_settings(conf, survey(open_directory(tmp_path), conf.settings()))
    assert "cuts the log off" in row.reason
    served = judge.examine(tmp_path, properties)["served"]["queues"]
    assert [queue["max"] < 40 for queue in served if queue["topic"] == "T"] == [is_cut]


@pytest.mark.parametrize("name", ["mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"])
def test_a_store_with_a_size_of_0_is_never_fully_checked(judge_of: JudgeOf, tmp_path: Path, name: str) -> None:
    judge, sizes = judge_of("5.5.0"), {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000"}
    with judge.open(tmp_path, sizes) as store:
        store.put({"topic": "T", "queueId": 0, "body": b"x"})
        store.wait_dispatched()
    conf = broker_conf(sizes | {name: "0"})
    assert list(unsimulated_settings(conf, survey(open_directory(tmp_path), conf.settings())))
    with judge.open(tmp_path, conf.properties, start=False) as store:
        assert store.opened["load"] is False


def test_read_only_paths_count_beside_several_others_only(judge_of: JudgeOf, tmp_path: Path) -> None:
    judge = judge_of("5.5.0")
    with judge.open(tmp_path, {"storePathCommitLog": "old"}) as store:
        store.put({"topic": "T", "queueId": 0, "body": b"x"})
    ends = []
    for paths in ("new", "new,newer"):
        config = {"storePathCommitLog": paths, "readOnlyCommitLogStorePaths": str(tmp_path / "old")}
        looked = broker_conf(config).settings().commitlog_directories
        assert (str(tmp_path / "old") in looked) is ("," in paths)
        copy = tmp_path / f"copy-{len(ends)}"
        with judge.open(copy, config) as store:
            ends.append(store.read(brief=True)["offsets"]["max"])
    assert ends[0] == 0
    assert ends[1] > 0


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_no_broker_starts_with_levels_that_are_none(tmp_path: Path, version: str) -> None:
    """Java splits at each blank: two of them have a level between them that is none."""
    for text, is_one in (("abc", False), ("1s  5s", False), ("-1s 5s ", True)):
        options = forecast_options(broker_conf({"messageDelayLevel": text}))
        assert (options.why_not is None) is is_one
        path = tmp_path / text.strip()
        if is_one:
            with WholeBroker(version, path, {"messageDelayLevel": text}):
                continue
        with pytest.raises(JudgeError, match="does not initialize"):
            WholeBroker(version, path, {"messageDelayLevel": text})


def starts(path: Path, version: str, texts: dict[str, str]) -> bool:
    rules = rules_for(version)
    conf = broker_conf(texts, reads=read_settings(rules))
    store = survey(open_directory(path), conf.settings())
    return forecast_store(store, rules, forecast_options(conf)).starts


def real_start(judge: Judge, path: Path) -> bool:
    """Whether a broker loads the store with the sizes that it has when it reads none of the names."""
    with judge.open(path, {}, start=False) as store:
        return bool(store.opened["load"])
