"""Compares a chunk of the log with the index entries that point into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rmqtool.engine.dispatch.index_entries import KERNEL
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.checkpoint import LATEST_MS
from rmqtool.formats.index import ENTRY_SIZE, HEADER
from rmqtool.quantities import JAVA_INT_MAX
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.scan.rules import Verdict
from rmqtool.verify.match.log_chunk import ExpectedIndex, RowsLookup, is_message
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.index_map import COMPILED_FROM_ENTRIES, IndexMap, SummedEntries
from rmqtool.verify.survey.queue_map import Array
from rmqtool.verify.survey.result import MissingKeys

FINDINGS_MAX: Final = 1000
_HASH_BITS: Final = 31


_FileEntries = tuple[IndexMap, Array, Array, Array]
"""Numbers, entries and keys of one file, of the entries that point into the chunk."""


@dataclass
class IndexMatch:
    """The comparison of one chunk; index entries of records with a doubtful header are not judged."""

    context: VerifyContext
    lookup: RowsLookup
    doubtful: list[int]
    findings: list[Finding] = field(default_factory=list)
    missing: list[MissingKeys] = field(default_factory=list)
    entry_count: int = 0

    def run(self, expected: ExpectedIndex) -> None:
        """Compare all index files; runs of records without their entries become `missing`."""
        self._headers(expected)
        if is_worth(len(expected.key_hashes), COMPILED_FROM_ENTRIES):
            if self._met_in_order(expected):
                self.entry_count += len(expected.key_hashes)
                return
            # A version that knows nothing of tags enters the others alone.
            are_tags = self._are_tags(expected)
            without_tags = ExpectedIndex(*(column[~are_tags] for column in expected))
            if are_tags.any() and self._met_in_order(without_tags):
                self.entry_count += len(without_tags.key_hashes)
                return
        expected_keys = self._keys(expected.physical_offsets, expected.key_hashes)
        files, open_file = list[_FileEntries](), self.context.open_file
        for file in self.context.index:
            numbers, entries = file.pointing_into(open_file, self.lookup.begin, self.lookup.end)
            if len(entries):
                keys = self._keys(entries["physical_offset"].astype(np.int64), entries["key_hash"])
                files.append((file, numbers, entries, keys))
                self.entry_count += len(keys)
        order = np.argsort(expected_keys, kind="stable")
        in_order, times = expected_keys[order], expected.store_timestamps_ms[order]
        met = np.zeros(len(in_order), np.bool_)
        torn = [file.end_physical_offset for file in self.context.index if not file.is_whole]
        wrong_offsets = [self._compare(file_entries, in_order, times, met) for file_entries in files]
        wrong_offsets.append(np.array(torn, np.int64))
        # A key that stands twice in one record gives two equal entries, of which the first was met.
        is_met = np.empty(len(in_order), np.bool_)
        is_met[order] = met[np.searchsorted(in_order, in_order)]
        is_met |= self._are_of_older_rules(expected, is_met, np.concatenate(wrong_offsets))
        without = np.flatnonzero(~is_met)
        without = without[~np.isin(expected.physical_offsets[without], self.doubtful)]
        # Runs of records without an entry between two that have theirs.
        breaks = np.flatnonzero(np.diff(without) > 1) + 1
        for run in np.split(without, breaks) if without.size else ():
            first, last = (int(expected.physical_offsets[number]) for number in (run[0], run[-1]))
            is_first, is_last = bool(run[0] == 0), bool(run[-1] == len(is_met) - 1)
            self.missing.append((first, last, len(run), is_first, is_last))

    def _are_tags(self, expected: ExpectedIndex) -> Array:
        """Mask of the entries for tags: a record's last one, if it has any. A delayed record may have none."""
        if not self.context.index_rules.index_tags:
            return np.zeros(len(expected.key_hashes), np.bool_)
        offsets = expected.physical_offsets
        is_last = np.append(offsets[1:] != offsets[:-1], True)[: len(offsets)]
        is_last[is_last] = self.lookup.tags_codes(offsets[is_last]) != 0
        return np.asarray(is_last)

    def _are_of_older_rules(self, expected: ExpectedIndex, is_met: Array, wrong_offsets: Array) -> Array:
        """Mask of the missing entries for tags of records that were indexed by a version that enters none.

        Such a record has all its other entries, and none that is wrong or was cut off, and a neighbor is such a record
        too. One without other entries is judged by the next ones before and after it.
        """
        is_tag = self._are_tags(expected)
        if not (is_tag & ~is_met).any():
            return np.zeros(len(is_met), np.bool_)
        starts = np.flatnonzero(np.append(True, expected.physical_offsets[1:] != expected.physical_offsets[:-1]))
        # Of a delayed record the code is a time, and its last entry may be that of a key.
        is_sure = is_tag & (np.abs(self.lookup.tags_codes(expected.physical_offsets)) <= JAVA_INT_MAX + 1)
        other_count, others_met, tag_count, tag_met, sure_met = (
            np.add.reduceat(flags.astype(np.int64), starts)
            for flags in (~is_tag, ~is_tag & is_met, is_tag, is_tag & is_met, is_sure & is_met)
        )
        lacks_tag = (tag_count > tag_met) & ~np.isin(expected.physical_offsets[starts], wrong_offsets)
        is_older = lacks_tag & (other_count > 0) & (others_met == other_count)
        is_undecided = lacks_tag & (other_count == 0)
        decided = np.flatnonzero(is_older | (others_met < other_count) | (sure_met > 0))
        between = is_older[decided][:-2] | is_older[decided][2:]
        is_older[decided[1:-1][~between]] = False  # no version wrote a single record between those of a newer one
        if len(decided):
            undecided = np.flatnonzero(is_undecided)
            after = np.searchsorted(decided, undecided)
            before = decided[np.maximum(after - 1, 0)]
            is_older[undecided] = is_older[before] | is_older[decided[np.minimum(after, len(decided) - 1)]]
        lengths = np.diff(np.append(starts, len(is_met)))
        return np.asarray(is_tag & np.repeat(is_older, lengths))

    def _headers(self, expected: ExpectedIndex) -> None:
        """Compare the times in a file's header with those of the records that it names, its first and its last one."""
        for file in self.context.index:
            begin_ms, end_ms = file.begin_timestamp_ms, file.end_timestamp_ms
            if not min(begin_ms, end_ms) > 0:
                continue  # which the file alone shows
            for name, physical_offset, time_ms in (
                ("begin_timestamp_ms", file.begin_physical_offset, begin_ms),
                ("end_timestamp_ms", file.end_physical_offset, end_ms),
            ):
                at = int(np.searchsorted(expected.physical_offsets, physical_offset))
                is_there = at < len(expected.physical_offsets) and expected.physical_offsets[at] == physical_offset
                stored_ms = int(expected.store_timestamps_ms[at]) if is_there else time_ms
                is_told = stored_ms != time_ms and 0 < stored_ms <= LATEST_MS  # no broker writes any other time
                if is_told and physical_offset not in self.doubtful:
                    self.findings.append(
                        finding(
                            "index.bad-header",
                            file.path,
                            f"{name} is {time_ms}, the record at {physical_offset} was stored at {stored_ms}",
                            file_position=HEADER.position(name),
                            length=8,
                            physical_offset=physical_offset,
                            expected=str(stored_ms),
                            found=str(time_ms),
                        )
                    )

    def _met_in_order(self, expected: ExpectedIndex) -> bool:
        """True if the entries are exactly the expected ones, in the order in which a broker puts them."""
        kernel, lookup, at = load_kernel(KERNEL), self.lookup, 0
        for file in self.context.index:
            begin_ms = file.begin_timestamp_ms
            for number, part in file.parts(self.context.open_file, lookup.begin, lookup.end):
                if isinstance(part, SummedEntries):
                    here = [column[at : at + part.entry_count] for column in expected]
                    at += part.entry_count
                    if at > len(expected.key_hashes) or not file.has_sum(part, number, here):
                        return False
                    continue
                entries = np.frombuffer(part, np.uint8)
                at = kernel.entries_met(entries, number, lookup.begin, lookup.end, begin_ms, *expected, at)
                if at < 0:
                    return False
        return bool(at == len(expected.key_hashes))

    def _compare(self, file_entries: _FileEntries, in_order: Array, times: Array, met: Array) -> Array:
        """Report wrong entries of a file, mark the expected ones that are met; to which offsets wrong ones point."""
        file, numbers, entries, keys = file_entries
        exempt = np.isin(entries["physical_offset"], self.doubtful)
        if len(in_order):
            at = np.minimum(np.searchsorted(in_order, keys), len(in_order) - 1)
            right = in_order[at] == keys
            met[at[right]] = True
            deltas = np.clip((times[at] - file.begin_timestamp_ms) // 1000, 0, JAVA_INT_MAX)
            # Division in the broker rounds towards zero, which differs below it only, where the result is 0 anyway. The
            # time of a file's first entry goes by the file before.
            has_time = (entries["time_delta_seconds"] == deltas) | (numbers == 1)
            late = right & ~exempt & ~has_time
        else:
            right = late = np.zeros(len(keys), np.bool_)
        wrong = ~right & ~exempt
        for index in np.flatnonzero(wrong)[:FINDINGS_MAX].tolist():
            entry, row = entries[index], self.lookup.at(int(entries["physical_offset"][index]))
            if row["verdict"] not in (Verdict.GOOD, Verdict.STALE):
                continue  # its message is lost with the damage, which is a finding of its own
            text, number = self.lookup.describe(row), int(numbers[index])
            if is_message(row) and row["physical_offset"] == entry["physical_offset"]:
                text, key_hash = f"its hash belongs to no key of {text}", str(int(entry["key_hash"]))
                self._say(file, number, entry, "index.bad-entry", text, found=key_hash)
            else:
                self._say(file, number, entry, "index.dangling-entry", f"points to {text}")
        # Those that do not lie between two others of the same chunk, in the file and in the log alike.
        follows = (np.diff(numbers) == 1) & (np.diff(entries["physical_offset"].astype(np.int64)) >= 0)
        is_edge = ~(np.concatenate([[False], follows]) & np.concatenate([follows, [False]]))
        for index in np.flatnonzero(wrong & is_edge)[:FINDINGS_MAX].tolist():
            self._of_order(file, int(numbers[index]), entries[index])
        for index in np.flatnonzero(late)[:FINDINGS_MAX].tolist():
            seconds = int(entries["time_delta_seconds"][index])
            text = f"its record was not stored {seconds} s after the file's first"
            self._say(file, int(numbers[index]), entries[index], "index.bad-entry", text, found=str(seconds))
        return np.asarray(entries["physical_offset"][wrong].astype(np.int64))

    def _keys(self, physical_offsets: Array, hashes: Array) -> Array:
        """Place in the chunk and hash as one number."""
        return (physical_offsets - self.lookup.begin << _HASH_BITS) | hashes.astype(np.int64)

    def _of_order(self, file: IndexMap, number: int, entry: Any) -> None:
        """An entry that points into damage, between entries that point elsewhere.

        Brokers enter records in the order of the log (`IndexService#buildIndex` skips older ones).
        """
        physical_offset = int(entry["physical_offset"])
        if self.lookup.at(physical_offset)["verdict"] in (Verdict.GOOD, Verdict.STALE):
            return
        before, after = file.around(self.context.open_file, number)
        if before and after:
            is_misplaced = before[-1] <= after[0] and not before[-1] <= physical_offset <= after[0]
        else:
            is_misplaced = len(before + after) > 1 and not (
                min(before, default=physical_offset) <= physical_offset <= max(after, default=physical_offset)
            )
        if is_misplaced:
            near = " and ".join(str(offset) for offset in (*before[-1:], *after[:1]))
            text = f"points to {physical_offset}, the entries beside it to {near}"
            self._say(file, number, entry, "index.bad-entry", text, found=str(physical_offset))

    def _say(self, file: IndexMap, number: int, entry: Any, kind: str, message: str, **details: Any) -> None:
        self.findings.append(
            finding(
                kind,
                file.path,
                f"entry {number}: {message}",
                file_position=file.position(number),
                physical_offset=int(entry["physical_offset"]),
                length=ENTRY_SIZE,
                **details,
            )
        )
