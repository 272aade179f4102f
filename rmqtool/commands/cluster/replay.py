"""`rmqtool replay`: a store's messages sent into a running cluster. What is sent, and how, `rmqtool.replay` decides."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import refuse_dash
from rmqtool.commands.options.run import pairs
from rmqtool.commands.options.spark_tables import FromTimeOption, TopicOption, ToTimeOption
from rmqtool.commands.screen import show_object
from rmqtool.errors import UsageError
from rmqtool.report.writers import ObjectFormat
from rmqtool.store.location import StoreLocation, store_location

ReplayedStores = Annotated[
    list[StoreLocation],
    typer.Argument(metavar="STORE...", help="Store roots, replayed one after the other.", parser=store_location),
]


def replay(
    context: typer.Context,
    stores: ReplayedStores,
    to: Annotated[str, option("--to NAMESRV", "Name server of the cluster: HOST:PORT; several with ;.")],
    topic: TopicOption = None,
    renames: Annotated[
        list[str] | None, option("--map OLD=NEW", "Send messages of topic OLD to topic NEW; repeatable.")
    ] = None,
    from_time: FromTimeOption = None,
    to_time: ToTimeOption = None,
    rate: Annotated[float | None, option("--rate N", "Send at most this many messages a second.", min=0.001)] = None,
    state: Annotated[
        Path | None, option("--state FILE", "Note what was sent; a run with the same file continues.")
    ] = None,
    wait: Annotated[float, option("--wait SECONDS", "How long a broker may be away or busy.", min=0)] = 60,
    dry_run: Annotated[bool, option("--dry-run", "Count what would be sent, and look up routes.")] = False,
    broker_conf: shared.BrokerConfOption = None,
    broker_version: shared.BrokerVersionOption = None,
    form: shared.ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Send the messages of stores into a running cluster, as a producer.

    The order of each queue is kept. With --state, a run that was stopped or killed continues where it was, and no
    message is sent twice. Original time and id stay with each message as properties. The exit code is 3 if something
    could not be sent.

    Example: rmqtool replay /backup/store --to 10.0.0.5:9876 --topic Orders --state orders.replay
    """
    from rmqtool.dump.waiting import waiting_of
    from rmqtool.replay.cluster import Cluster
    from rmqtool.replay.journal import ReplayJournal
    from rmqtool.replay.outgoing import Selection
    from rmqtool.replay.run import Replay, SourceStore

    messages = messages_of(context)
    selection = Selection(
        tuple(topic or ()),
        _renames(renames or ()),
        shared.timestamp_ms(from_time, "--from-time"),
        shared.timestamp_ms(to_time, "--to-time"),
    )
    sources = []
    for place in stores:
        opened = shared.open_store(place, shared.StoreOptions(broker_conf=broker_conf, broker_version=broker_version))
        shared.tell_opened(opened, messages)
        if state is not None:
            refuse_dash("--state", state)
            shared.refuse_inside_store(state, "the state file", place, opened.store.settings.commitlog_directories)
        waiting = waiting_of(opened.store, opened.rules)
        for problem in waiting.problems:
            messages.warn(f"delayed messages: {problem}")
        sources.append(SourceStore(opened.store, opened.rules, waiting))
    with closing(Cluster(to)) as cluster:
        if dry_run:
            result = _counted(sources, selection, cluster, messages)
        else:
            request = {
                "stores": [str(place if place.path is None else place.path.resolve()) for place in stores],
                "topics": list(selection.topics),
                "map": dict(selection.renames),
                "from_ms": selection.from_ms,
                "to_ms": selection.to_ms,
            }
            with closing(ReplayJournal(state, request)) as journal, messages.progress("replay") as progress:
                messages.interrupted = (
                    f"the same command continues; {state} knows what was sent"
                    if state is not None
                    else "without --state nothing notes which messages were sent"
                )
                run = Replay(cluster, journal, selection, rate=rate, patience_seconds=wait)
                run.run(sources, progress.show)
                result = {
                    "sent": dict(journal.state.sent),
                    "not_sent": dict(journal.state.not_sent),
                    "refusals": journal.state.refusals,
                    "found": run.found,
                    "routes": {name: len(queues) for name, queues in journal.state.queues.items()},
                }
    _show({"to": to, "dry_run": dry_run, **result}, selection.renames, form)


def _renames(texts: Sequence[str]) -> dict[str, str]:
    renames: dict[str, str] = {}
    for old, new in pairs(texts, "--map", "OLD=NEW"):
        if not new:
            raise UsageError(f"--map: '{old}=' is not OLD=NEW")
        if renames.setdefault(old, new) != new:
            raise UsageError(f"--map: topic {old} is mapped twice")
    return renames


def _counted(sources: Sequence[Any], selection: Any, cluster: Any, messages: Messages) -> dict[str, Any]:
    from rmqtool.replay.outgoing import NotSent, outgoing_messages

    sent: Counter[str] = Counter()
    not_sent: Counter[str] = Counter()
    now_ms = int(time.time() * 1000)
    with messages.progress("replay: count"):
        for source in sources:
            for entry in outgoing_messages(source.store, source.rules, selection, source.waiting, now_ms):
                if isinstance(entry, NotSent):
                    not_sent[entry.reason] += 1
                else:
                    sent[entry.topic] += 1
    targets = sorted({selection.renames.get(name, name) for name in sent})
    routes = {name: sum(broker.write_queues for broker in cluster.route(name)) for name in targets}
    routes = {name: count for name, count in routes.items() if count}
    return {"sent": dict(sent), "not_sent": dict(not_sent), "refusals": [], "found": 0, "routes": routes}


def _show(result: dict[str, Any], renames: Mapping[str, str], form: ObjectFormat) -> None:
    """Print the result; exit with 3 if any message was, or would be, left out."""
    from rmqtool.replay.outgoing import LOST
    from rmqtool.report.screens.replay_screen import replay_lines

    topics = {name: renames.get(name, name) for name in result["sent"]}
    has_routes = all(name in result["routes"] for name in topics.values())
    complete = has_routes and not LOST & set(result["not_sent"])
    result = {**result, "topics": topics, "complete": complete}
    show_object(result, replay_lines, form)
    if not complete:
        raise typer.Exit(ExitCode.FINDINGS)
