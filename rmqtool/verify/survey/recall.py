"""Results of an earlier check of the same run, of files that have not changed since.

A repair checks a store before, between and after its steps, and most files are the same each time. What was seen is
kept beside the cache of the log, and holds for files of the same identity that are looked at in the same terms. What a
split is compared with may lie anywhere in queues and index, so all of their files have to be what they were, and all of
the log.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from rmqtool.engine.dispatch.placed_messages import QUESTION, QUEUES_MAX
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account, FileAccount
from rmqtool.findings.finding import Finding
from rmqtool.scan.log import RecordTable
from rmqtool.scan.row_cache import RowCache
from rmqtool.scan.split import Split
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.queue_map import Open
from rmqtool.verify.survey.result import SplitResult

_OF_FILES: Final = frozenset({"store", "options", "queues", "batch_queues", "index"})
"""Fields of a context that the files tell, or that hold more than a split's result depends on."""

_SIZES: Final = (
    "commitlog_file_size", "consumequeue_file_size", "extension_file_size", "batch_file_size",
    "index_slot_count", "index_entry_count",
)  # fmt: skip


class SeenSplits:
    """The splits of one run of a check, in its context.

    Args:
        seen_files: what was seen of each queue and index file; see `Seen`.
    """

    def __init__(self, context: VerifyContext, table: RecordTable, seen_files: Sequence[object]) -> None:
        store, scan = context.store, table.scan
        self._cache = context.options.cache
        extensions = [segment.path for queue in store.extensions.values() for segment in queue.segments]
        files = [*(split.source.name for split in table.splits), *extensions]
        is_told_by_files = context.live_end is None and store.queue_database is None and context.second is None
        made_of = identities(files, store.view.open, self._cache) if is_told_by_files else UNKNOWN
        self._terms: tuple[object, ...] | None = None
        if made_of is not UNKNOWN and None not in made_of:
            self._terms = (
                made_of,
                *seen_files,
                tuple(files),
                *(getattr(store, name) for name in _SIZES),
                store.queue_kind,
                context.options.depth,
                (scan.record_crc, tuple(scan.delays_ms), scan.keys_of),
                *(getattr(context, field.name) for field in fields(context) if field.name not in _OF_FILES),
            )
        self._contents: Mapping[str, Hashable] = {}
        """Identities of the queues' files before anything is compared with them; empty where there are very many."""
        if self._terms is not None and len(context.queues) <= QUEUES_MAX:
            paths = [file.path for queue in context.queues.values() for file in queue.files]
            known = identities(paths, store.view.open, self._cache)
            self._contents = {} if known is UNKNOWN else dict(zip(paths, known, strict=True))
        # Where something is wrong, it may be looked for in files of the log without data too.
        self._all_files = tuple((segment.path, segment.start, segment.size) for segment in store.commitlog)

    def result(self, split: Split) -> SplitResult | None:
        """The result of a split, for the caller to change; None where it has to be checked."""
        if self._cache is None or self._terms is None:
            return None
        name = _name(split)
        known: SplitResult | None = self._cache.recall(name, self._terms)
        known = known or self._cache.recall(name, (self._terms, self._all_files))
        return None if known is None else replace(known, findings=list(known.findings))

    def keep(self, split: Split, result: SplitResult) -> None:
        """Keep a result for later runs."""
        if self._cache is None or self._terms is None:
            return
        agrees = not (result.findings or result.missing or result.missing_keys)
        made_of = self._terms if agrees else (self._terms, self._all_files)
        self._cache.keep(_name(split), made_of, replace(result, findings=list(result.findings)))
        if agrees and self._contents:
            placed = replace(result.placed, contents=self._contents)
            self._cache.notes[(split.source.identity, split.physical_offset), QUESTION] = placed


def _name(split: Split) -> Hashable:
    return "split", split.source.name, split.start, split.end, split.physical_offset, split.more_follows


Result_co = TypeVar("Result_co", covariant=True)
UNKNOWN: Final = None
"""Instead of terms: nothing is recalled, and nothing kept."""


class FilePass(Protocol[Result_co]):
    """The look at some files alone."""

    account: Account
    findings: list[Finding]
    answers: dict[str, tuple[Hashable, object]]
    """A question to each file that others may ask, with its answer, by path."""

    def run(self, open_file: Open) -> Result_co: ...


@dataclass(frozen=True, eq=False)
class Seen(Generic[Result_co]):
    """Result of a pass; it equals itself only, so that it shows if a later pass saw the very same."""

    result: Result_co
    findings: tuple[Finding, ...]
    accounts: dict[str, FileAccount]


def seen_by(
    one: FilePass[Result_co], paths: Iterable[str], terms: Hashable, open_file: Open, cache: RowCache | None
) -> Seen[Result_co]:
    """Result of a pass that reads these files, run or recalled, in its account; it depends on the terms beside them."""
    names = tuple(paths)
    made_of = identities(names, open_file, cache)
    key = (type(one).__name__, names)
    if cache is None or made_of is UNKNOWN:
        return _run(one, names, open_file)
    seen: Seen[Result_co] | None = cache.recall(key, (made_of, terms))
    if seen is None:
        seen = _run(one, names, open_file)
        if None in made_of:  # of a file that a planner has built, the run itself tells it
            later = identities(names, open_file, cache) or made_of
            made_of = tuple(new if old is None else old for old, new in zip(made_of, later, strict=True))
        if None not in made_of:
            cache.keep(key, (made_of, terms), seen)
            identity_of = dict(zip(names, made_of, strict=True))
            answers = one.answers.items()
            cache.notes.update({(identity_of[path], question): answer for path, (question, answer) in answers})
    else:
        one.account.files.update({path: replace(account) for path, account in seen.accounts.items()})
    return seen


def identities(paths: Iterable[str], open_file: Open, cache: RowCache | None) -> tuple[Any, ...] | None:
    """The identities of files, None of one that has none; `UNKNOWN` where nothing could be recalled."""
    if cache is None:
        return UNKNOWN
    known = []
    for path in paths:
        try:
            with closing(open_file(path)) as source:
                known.append(cache.identity(source))
        except UnreadableError:
            return UNKNOWN
    return tuple(known)


def _run(one: FilePass[Result_co], paths: tuple[str, ...], open_file: Open) -> Seen[Result_co]:
    result = one.run(open_file)
    files = one.account.files
    return Seen(result, tuple(one.findings), {path: replace(files[path]) for path in paths if path in files})
