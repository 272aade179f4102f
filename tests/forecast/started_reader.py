"""Asks the simulated broker: the engine's reader over the store as it would be after the start."""

from __future__ import annotations

from dataclasses import replace

from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.reader import Reader
from rmqtool.forecast.queue_state import QueueState
from rmqtool.forecast.simulate import Simulation
from rmqtool.store.directory import Settings
from rmqtool.store.file_kinds import FileKind


class StartedReader(Reader):
    """Answers as the broker would once it runs; valid as long as the simulation is open.

    The simulation must have run, and the broker must start; by key only a simulation that keeps its index answers.
    """

    def __init__(self, simulation: Simulation) -> None:
        assert simulation.log is not None
        assert simulation.why_not is None
        store = simulation.store
        files = {
            **store.files,
            FileKind.COMMITLOG: tuple(segment.entry for segment in simulation.log.segments),
            FileKind.INDEX: simulation.index.files(),
        }
        settings: Settings = replace(
            store.settings,
            commitlog_file_size=store.commitlog_file_size,
            index_slot_count=simulation.index.slot_count,
        )
        after = replace(store, view=simulation.overlay, files=files, settings=settings)
        super().__init__(after, simulation.rules, is_slave=simulation.options.is_slave, log_end=simulation.log.end)
        self._simulation = simulation
        self._started: dict[tuple[str, int], Queue] = {}

    def queues(self) -> tuple[tuple[str, int], ...]:
        """Topic and queue id of every queue that the broker has, sorted."""
        return tuple(sorted(self._simulation.queues))

    def queue(self, topic: str, queue_id: int) -> Queue:
        """A queue; an empty one where the broker has none, as it makes it on being asked."""
        name = (topic, queue_id)
        if name not in self._started:
            state = self._simulation.queues.get(name) or self._simulation.sides.reading.make(name, False)
            self._started[name] = self._known(state)
        return self._started[name]

    def _known(self, state: QueueState) -> Queue:
        simulation, store = self._simulation, self.store
        if isinstance(state, QueueState):  # files that were written to have another modification time
            state.loaded.segments = [
                replace(segment, entry=simulation.overlay.stat(segment.path) or segment.entry)
                for segment in state.loaded.segments
            ]
        files = store.extensions.get((state.topic, state.queue_id))
        extension = QueueExtension(files, store.extension_file_size, simulation.files) if files is not None else None
        return state.queue(self.log.minimum, extension)
