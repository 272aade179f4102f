"""Counts messages that only queues and index still know: the files of the log that held them are missing, or too short.

No such message can be read, so a repair cannot lose it. But where the log's disk is not mounted, or a copy broke off,
the messages are elsewhere, and a repair would remove what still points to them. So a person has to agree to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqtool.engine.reading.messages_without_log import (
    Array,
    entries_without_file,
    queues_of,
    ranges_without_file,
    units_without_file,
)
from rmqtool.repair.machine.plan import Loss
from rmqtool.repair.machine.steps import Step
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import data_directories, with_dledger_log
from rmqtool.store.location import log_directories


def gone_messages(before: Store, after: Store, steps: Sequence[Step]) -> Loss:
    """Messages that queues or index point to, of which the log has no file, and to which nothing points afterwards."""
    ranges = ranges_without_file(before, with_dledger_log(before).commitlog)
    touched = {step.path.rpartition("/")[0] for step in steps}
    names = {name for store in (before, after) for name, _, directory in queues_of(store) if directory in touched}
    messages = lost_bytes = 0
    by_topic: dict[str, int] = {}
    known: list[Array] = []
    for topic in sorted(names):
        units = units_without_file(before, topic, touched, ranges)
        if len(units):
            units = units[~np.isin(units[:, 0], units_without_file(after, topic, touched, ranges)[:, 0])]
        if len(units):
            by_topic[topic] = len(units)
            known.append(units[:, 0])
            messages, lost_bytes = messages + len(units), lost_bytes + int(units[:, 1].sum())
    if "index" in touched:
        entries = np.setdiff1d(entries_without_file(before, ranges), entries_without_file(after, ranges))
        messages += len(np.setdiff1d(entries, np.concatenate(known) if known else entries[:0]))
    return Loss(messages, lost_bytes, by_topic, messages)


def unmounted_text(store: Store, count: int) -> str:
    """Advice on what to check first, as a sentence.

    Args:
        count: messages that queues or index point to and no file of the log holds; 0 if nobody has counted.
    """
    directories = ", ".join((*log_directories(store), *data_directories(store)))
    what = f"{count} messages are" if count else "there is something"
    return (
        f"{what} in the queues or the index, but commit log files are missing or too short: check first that the disk "
        f"of {directories} is mounted and that the copy is complete"
    )
