"""Reuses results of an earlier check of the same run, of files that have not changed.

A repair checks a store before, between and after its steps, and most files are the same each time. What was seen is
kept beside the digest of the log, and holds for files of the same identity that are looked at in the same terms.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account, FileAccount
from rmqtool.findings.finding import Finding
from rmqtool.scan.log_digest import LogDigest
from rmqtool.verify.survey.queue_map import Open

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
    """What a pass came to; it equals itself only, so that it tells whether a later pass saw the very same."""

    result: Result_co
    findings: tuple[Finding, ...]
    accounts: dict[str, FileAccount]


def seen_by(
    one: FilePass[Result_co], paths: Iterable[str], terms: Hashable, open_file: Open, digest: LogDigest | None
) -> Seen[Result_co]:
    """What a pass comes to, run or recalled; its account holds it.

    Args:
        paths: all files that it reads.
        terms: all else that its result depends on.
    """
    names = tuple(paths)
    made_of = identities(names, open_file, digest)
    key = (type(one).__name__, names)
    if digest is None or made_of is UNKNOWN:
        return _run(one, names, open_file)
    seen: Seen[Result_co] | None = digest.recall(key, (made_of, terms))
    if seen is None:
        seen = _run(one, names, open_file)
        if None in made_of:  # of a file that a planner has built, the run itself tells it
            later = identities(names, open_file, digest) or made_of
            made_of = tuple(new if old is None else old for old, new in zip(made_of, later, strict=True))
        if None not in made_of:
            digest.keep(key, (made_of, terms), seen)
            identity_of = dict(zip(names, made_of, strict=True))
            answers = one.answers.items()
            digest.notes.update({(identity_of[path], question): answer for path, (question, answer) in answers})
    else:
        one.account.files.update({path: replace(account) for path, account in seen.accounts.items()})
    return seen


def identities(paths: Iterable[str], open_file: Open, digest: LogDigest | None) -> tuple[Any, ...] | None:
    """The identities of files, None of one that has none; `UNKNOWN` where nothing could be recalled."""
    if digest is None:
        return UNKNOWN
    known = []
    for path in paths:
        try:
            with closing(open_file(path)) as source:
                known.append(digest.identity(source))
        except UnreadableError:
            return UNKNOWN
    return tuple(known)


def _run(one: FilePass[Result_co], paths: tuple[str, ...], open_file: Open) -> Seen[Result_co]:
    result = one.run(open_file)
    files = one.account.files
    return Seen(result, tuple(one.findings), {path: replace(files[path]) for path in paths if path in files})
