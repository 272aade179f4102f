"""What has to hold at any moment of a repair, and when it is over: the original or the repaired store, or a fence."""

from __future__ import annotations

from pathlib import Path

from rmqtool.store.file_kinds import FENCE_NAME
from tests.campaign.cases import Case
from tests.campaign.command import CLEAN_EXITS, Outcome
from tests.campaign.trees import OWN, Tree, capture, differences, put_back, without_lock, without_own

STAGING = f"store/{OWN}/staging"
"""Where planners build files."""


class Guard:
    """A case, and the two states in which its store may be met without a fence."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.original = case.original
        case.fresh(folder)
        self.repair = case.repair(folder)
        assert self.repair.code in (0, 3), self.repair.said
        self.repaired = capture(folder)
        assert differences(without_own(self.original), without_own(self.repaired)), f"{case.name} repairs nothing"

    def unguarded(self, now: Tree) -> list[str]:
        """What a broker would meet that is neither the store before the repair nor the one after it."""
        fences = [log.relative_to(self.folder) / FENCE_NAME for log in self.case.logs(self.folder)]
        if all(str(fence) in now for fence in fences):
            return []
        files = without_own({path: node for path, node in now.items() if not path.endswith(FENCE_NAME)})
        for known in (self.original, self.repaired):
            if not differences(without_own(known), files, times=False):
                return []
        return [f"no fence in {fences}", *differences(without_own(self.original), files, times=False)]

    def not_original(self, start: Tree | None = None, *, leaves: bool = False) -> list[str]:
        """What differs from the folder before the repair, byte for byte, times and modes included.

        Args:
            start: what the folder was like before; where a run was killed before it changed the store, or after, what
                the store directory's time was is known to nobody.
            leaves: what a killed run was building may lie there, for nothing asked for it to go.
        """
        lines = differences(without_lock(self.original), without_lock(capture(self.folder)))
        lines = [line for line in lines if not line.startswith("kept: modification time")]  # no part of the store
        if start is None or not self._is_untouched(start):
            return lines
        lines = [line for line in lines if not line.startswith("store: modification time")]
        return [line for line in lines if not (leaves and line.startswith((f"store/{OWN}: came", STAGING)))]

    def _is_untouched(self, state: Tree) -> bool:
        has_fence = any(path.endswith(f"/{FENCE_NAME}") for path in state)
        return not has_fence and not differences(without_own(self.original), without_own(state))

    def not_repaired(self) -> list[str]:
        """What differs from the folder after the repair; when a new file was made does not matter."""
        return differences(without_own(self.repaired), without_own(capture(self.folder)), times=False)

    def not_undone(self, state: Tree) -> list[str]:
        """Why the store is not the original after an undo of a state."""
        put_back(state, self.folder)
        return [*unclean(self.case.undo(self.folder), 0), *self.not_original(state, leaves=True)]

    def not_finished(self, state: Tree) -> list[str]:
        """Why the same command does not lead from a state to the repaired store, and undo from there on back."""
        put_back(state, self.folder)
        wrong = [*unclean(self.case.repair(self.folder), 0, 3), *self.not_repaired()]
        if wrong:
            return wrong
        # The journal of a repair that was finished and of one that came after it: one undo each.
        while (self.folder / "store" / OWN).exists() and not wrong:
            wrong = unclean(self.case.undo(self.folder), 0)
        return [*wrong, *self.not_original(state)]


def unclean(outcome: Outcome, *codes: int) -> list[str]:
    """What is wrong with how a command ended."""
    expected = codes or CLEAN_EXITS
    return [] if outcome.code in expected and "Traceback" not in outcome.errors else [outcome.said]
