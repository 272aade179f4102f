"""Assessment of names, lengths and permissions of a store's files, and why brokers would not load it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rmqtool.answer.answer import Assessment, FindingTally
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.presence import missing_log, reader_command, unreadable_files
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.errors import RmqtoolError
from rmqtool.forecast import load
from rmqtool.forecast.load import LoadFailure
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import Store, is_log_file_size_known
from rmqtool.store.dledger_files import with_dledger_log
from rmqtool.store.file_kinds import FENCE_NAME, FileKind
from rmqtool.store.location import log_directories
from rmqtool.store.overlay import Overlay
from rmqtool.store.view import StoreView


def assessment_of_files(
    opened: OpenedStore,
    line: CommandLine,
    command: str,
    tally: FindingTally,
    coverage: Iterable[UnreadFiles],
    *,
    is_log_decoded: bool,
) -> Assessment:
    """Assessment of the files, with the findings about them; `coverage` is what was not looked at."""
    store = opened.store
    return Assessment(
        log_missing=missing_log(store),
        unreadable=tuple(map(str, unreadable_files(store))),
        reader=reader_command(store, line(command)),
        start_failures=start_failures(store, opened.rules, opened.possible_versions),
        damaged=tally.damaged,
        missing_files=tally.missing_files,
        inconsistent=tally.inconsistent(is_log_decoded=is_log_decoded),
        not_looked_at=tuple(coverage),
    )


def start_failures(store: Store, rules: BrokerRules, possible: Iterable[str] = ()) -> Mapping[str, str]:
    """Why brokers do not load a store, by version; none where each version that may start on it does: these, and the
    one by whose rules it is judged.
    """
    configs = StoreConfigs(store.view)
    with Overlay(store.view) as listed:  # each directory is listed for one version, and known to the others
        judged = {rules.version: rules, **{version: rules_for(version) for version in possible}}
        reasons = {version: _failure(store, listed, one, configs) for version, one in judged.items()}
        if not any(reasons.values()):
            return {}
        for version in EXAMINED:
            if version not in reasons:
                reasons[version] = _failure(store, listed, rules_for(version), configs)
    return {version: why for version, why in sorted(reasons.items()) if why is not None}


def _failure(store: Store, listed: StoreView, rules: BrokerRules, configs: StoreConfigs) -> str | None:
    for entry in store.files.get(FileKind.RMQTOOL, ()):
        if entry.name == FENCE_NAME:
            return f"{entry.path}, which an unfinished repair has left"
    try:
        _load(store, listed, rules, configs)
    except LoadFailure as failure:
        return str(failure)
    except RmqtoolError:
        return None  # unreadable, or of a size that nothing shows: said elsewhere
    return None


def _load(store: Store, listed: StoreView, rules: BrokerRules, configs: StoreConfigs) -> None:
    """Load the files of log, queues and extensions as a broker does; `listed` shows what the store's own view shows.
    LoadFailure if the broker gives up, UnreadableError if a directory may not be listed.
    """
    with Overlay(listed) as overlay:
        log = with_dledger_log(store) if rules.dledger else store  # files of both have one size
        if store.commitlog_file_size and is_log_file_size_known(log):
            load.load_files(overlay, log_directories(store), log.commitlog_file_size, rules)
        load.demand_queue_database(store, rules)
        batch = load.configured_batch_topics(configs.of(TOPICS)[TOPICS], store)
        if store.consumequeue_file_size or store.batch_file_size:
            sizes = (store.consumequeue_file_size, store.batch_file_size)
            for queue in load.load_queues(overlay, *sizes, rules, batch if rules.batch_queues else frozenset()):
                extension = f"{load.EXTENSIONS}/{queue.topic}/{queue.queue_id}"
                if not queue.is_batch and overlay.stat(extension) is not None:
                    load.load_files(overlay, (extension,), store.extension_file_size, rules)
        if rules.dledger:
            load.demand_dledger_files(store)
        load.demand_side_stores(store, rules, configs)
