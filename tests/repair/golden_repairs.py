"""Golden stores as the planners of repairs are told about them, and planned stores held against real ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.tags import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.digest import digest_of
from rmqtool.repair.machine.plan import Plan, view_over
from rmqtool.repair.machine.steps import Step
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.view import StoreView, open_directory
from tests import golden_stores

DERIVED = (FileKind.CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT, FileKind.BATCH_CONSUMEQUEUE)


def config_of(name: str) -> tuple[str, Mapping[str, Any]]:
    """Version that wrote a store, and its settings in the broker's words."""
    if name.startswith("broker-"):
        found = golden_stores.broker_manifest(name)
        return found["broker_version"], found["config"]
    manifest = golden_stores.manifest(name)
    return manifest.writer, manifest.config


def settings_of(name: str) -> Settings:
    """What a broker's properties file would say."""
    config = config_of(name)[1]
    directories = config.get("storePathCommitLog")
    return Settings(
        commitlog_directories=tuple(directories.split(",")) if directories else (),
        **vars(golden_stores.settings(name)),
        batch_file_size=config.get("mapperFileSizeBatchConsumeQueue"),
        extension_file_size=config.get("mappedFileSizeConsumeQueueExt"),
    )


def options_of(name: str) -> BuildOptions:
    config = config_of(name)[1]
    return BuildOptions(
        delays_ms=tuple(parse_delay_levels(config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS))),
        extension=bool(config.get("enableConsumeQueueExt")),
    )


def rules_of(name: str) -> BrokerRules:
    return rules_for(config_of(name)[0])


def store_of(place: Path | StoreView, name: str) -> Store:
    return survey(open_directory(place) if isinstance(place, Path) else place, settings_of(name))


def planned_store(place: Path, name: str, steps: tuple[Step, ...]) -> Store:
    """The store as steps leave it, which are not carried out."""
    plan = Plan("test", "", rules_of(name).version, steps)
    plan.check(settings_of(name).commitlog_directories)
    return store_of(view_over(open_directory(place), plan.steps), name)


def derived_differences(theirs: Store, ours: Store) -> Iterator[str]:
    """Where queues and index of two stores differ; index files are told by their order, not by their names."""
    for kind in DERIVED:
        mine = {entry.path for entry in ours.files.get(kind, ())}
        known = {entry.path for entry in theirs.files.get(kind, ())}
        yield from (f"{path}: {'missing' if path in known else 'too much'}" for path in sorted(mine ^ known))
        yield from (path for path in sorted(mine & known) if digest(theirs, path) != digest(ours, path))
    pairs = [[entry.path for entry in store.index_files] for store in (theirs, ours)]
    if len(pairs[0]) != len(pairs[1]):
        yield f"index: {len(pairs[1])} files, not {len(pairs[0])}"
    yield from (
        f"index file {number}"
        for number, (known, mine) in enumerate(zip(*pairs, strict=False))
        if digest(theirs, known) != digest(ours, mine)
    )


def digest(store: Store, path: str) -> str:
    source = store.view.open(path)
    try:
        return digest_of(source, 0, source.size)
    finally:
        source.close()
