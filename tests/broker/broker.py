"""The judge: a real RocketMQ store, driven from Python. Messages in, crash or stop, everything it serves out."""

import base64
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.broker.files import changes, snapshot
from tests.broker.program import JavaProgram, JudgeError
from tests.broker.versions import version_named

__all__ = ["Judge", "JudgeError", "OpenStore", "served_places", "setting_texts"]

Answer = dict[str, Any]
Message = Mapping[str, Any]


class Judge:
    """One process that serves the real stores of one version, one after another or several at a time."""

    def __init__(self, version: str, *java_options: str) -> None:
        self.version = version
        self.program = JavaProgram(version_named(version), "judge.Judge", *java_options)
        self._numbers = itertools.count()
        self._stuck = False

    def open(
        self,
        directory: Path,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, Any] | None = None,
        *,
        start: bool = True,
        clock_offset_ms: int = 0,
    ) -> "OpenStore":
        """Load the store in this directory, which is made if it is missing, and start it unless told otherwise.

        `config` has the names of the broker's own properties, those of BrokerConfig with `broker.` in front; relative
        paths are taken from the store directory. `topics`: name to `{"writeQueueNums", "attributes": {...}}`.
        Ports, timers and disk limits are set so that stores do not get into each other's way.
        The clock of the store, which gives records their times, goes wrong by `clock_offset_ms`.
        """
        self._restart_if_stuck()
        settings: Answer = {"topics": dict(topics or {}), "config": setting_texts(config or {})}
        if clock_offset_ms:
            settings["clockOffsetMs"] = clock_offset_ms
        if "topics" in settings["config"]:
            raise ValueError("topics are an argument of their own")
        return OpenStore(self, str(next(self._numbers)), directory, settings, start=start)

    def examine(
        self,
        directory: Path,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, Any] | None = None,
        **read: Any,
    ) -> Answer:
        """Load, start, read everything and stop: reports of all steps in one, with `served` and `filesAfter` in it.

        The broker does its recovery in this very directory. Where the store does not load or start, nothing is served
        and the report has no `served`.
        """
        store = self.open(directory, config, topics)
        report = _Report(store.opened)
        if store.serving:
            if store.has_group:
                store.wait_committed()
            report["served"] = store.read(**read)
        report.update(store.shutdown())
        report["filesAfter"] = changes(store.before, snapshot(directory))
        return report

    def close(self) -> None:
        self.program.close()

    def java_hash(self, text: str) -> int:
        """String.hashCode."""
        answer: int = self.program.ask("oracle.hash", text=text)["hash"]
        return answer

    def decoded_utf8(self, content: bytes) -> list[int]:
        """The UTF-16 code units that Java makes of these bytes."""
        answer: list[int] = self.program.ask("oracle.decode", bytes=_base64(content))["units"]
        return answer

    def encoded_utf8(self, text: str) -> bytes:
        """The bytes that Java makes of a text, which may hold lone surrogates."""
        return base64.b64decode(self.program.ask("oracle.encode", text=text)["bytes"])

    def crc32(self, content: bytes) -> int:
        """UtilAll.crc32: the CRC-32 with the top bit cleared."""
        answer: int = self.program.ask("oracle.crc32", bytes=_base64(content))["crc32"]
        return answer

    def properties_text(self, properties: Mapping[str, str]) -> str:
        """MessageDecoder.messageProperties2String of a HashMap, in its order."""
        answer: str = self.program.ask("oracle.propertiesToText", properties=dict(properties))["text"]
        return answer

    def parsed_properties(self, text: str) -> dict[str, str]:
        """MessageDecoder.string2messageProperties."""
        return dict(self.program.ask("oracle.textToProperties", text=text)["properties"])

    def message_id(self, host: str, physical_offset: int) -> str:
        """MessageDecoder.createMessageId."""
        answer: str = self.program.ask("oracle.messageId", host=host, physicalOffset=physical_offset)["messageId"]
        return answer

    def setting_names(self) -> dict[str, dict[str, str]]:
        """The settings of each class that has some, with the types that they are set by."""
        return dict(self.program.ask("settings.names"))

    def applied_settings(self, files: Iterable[bytes]) -> list[dict[str, Any]]:
        """What each class holds once each properties file was applied; `refused` where Java does not load it."""
        answers: list[dict[str, Any]] = self.program.ask(
            "settings.applied", 300, files=[_base64(content) for content in files]
        )["answers"]
        return answers

    def _was_stuck(self) -> None:
        self._stuck = True

    def _restart_if_stuck(self) -> None:
        """A lookup that never ends keeps a core busy and may keep its store from stopping: begin with a new process."""
        if self._stuck:
            self._stuck = False
            self.program.kill()


class OpenStore:
    """A store directory in the hands of a real store. As a context manager it is stopped cleanly at the end."""

    def __init__(self, judge: Judge, name: str, directory: Path, settings: Answer, *, start: bool) -> None:
        self._judge = judge
        self._name = name
        self._settings = settings
        self.directory = directory
        self.over = False
        directory.mkdir(parents=True, exist_ok=True)
        self.before = snapshot(directory)
        #: what load() and start() did: load, loadTrouble, lastExit, afterLoad, files, startTrouble, dispatched, ...
        self.opened: Answer = self._ask("open", directory=str(directory), **settings)
        self.opened["files"] = changes(self.before, snapshot(directory))
        if start and self.opened["load"]:
            self.start()

    @property
    def serving(self) -> bool:
        """Loaded and started."""
        return bool(self.opened["load"]) and self.opened.get("startTrouble", "") is None and not self.over

    @property
    def has_group(self) -> bool:
        """Whether the log is one of DLedger."""
        return bool(self._settings["config"].get("enableDLegerCommitLog") == "true")

    def start(self) -> None:
        """Start a store that was loaded only, and wait until the dispatcher has caught up."""
        self.opened.update(self._ask("start"))

    def put(self, *messages: Message) -> list[Answer]:
        """Put messages one after another, as the broker does when producers send them.

        A message: topic, queueId, body (bytes), flag, sysFlag, bornTimestamp, bornHost ("ip:port", "[ip6]:port"),
        storeHost, reconsumeTimes, preparedTransactionOffset; `properties` (names to texts) or `propertiesText` (the
        exact text to store). With `batch` or `innerBatch` (a list of body, flag, properties) in place of a body it is
        a batch. Each answer: status, appendStatus, physicalOffset, size, queueOffset, storeTimestamp, messageId, and
        topic, queueId and propertiesText as they were stored; or `trouble`, an exception.
        """
        answers: list[Answer] = self._ask("put", messages=[_encoded(message) for message in messages])["answers"]
        return answers

    def put_rate(self, message: Message, count: int) -> float:
        """Messages per second that the real store takes, all the same message, on one thread."""
        return count / float(self._ask("putRate", 600, message=_encoded(message), count=count)["seconds"])

    def wait_dispatched(self) -> Answer:
        """Wait until queues and index hold all that was put; `{"dispatched", "offsets"}`."""
        return self._ask("waitDispatched")

    def wait_committed(self) -> Answer:
        """Wait until the only member of a DLedger group leads and has committed and dispatched its log.

        A start that no checkpoint of the group tells what is committed reads nothing before: it serves what the queues
        lead to, and a second later all of the log. `{"committed", "dispatched", "offsets"}`.
        """
        return self._ask("waitCommitted")

    def lead(self) -> None:
        """Take the queues' ends for the next offsets, as a whole broker does once its member of a group leads."""
        self._ask("lead")

    def stop_dispatch(self) -> None:
        """What is put from now on reaches no queue and no index."""
        self._ask("stopDispatch")

    def set_condition(self, *, disk_full: bool = False, busy_ms: int = 0) -> None:
        """Make the store read-only as a full disk does, or as if another put had held the lock for so long."""
        self._ask("setCondition", diskFull=disk_full, busyMs=busy_ms)

    def stop_index(self) -> None:
        """What is put from now on reaches its queue, and no index."""
        self._ask("stopIndex")

    def delete_topic(self, topic: str, kept: Iterable[str]) -> None:
        """Delete a topic's queues as a broker does; its config/topics.json has the names in `kept` afterwards."""
        self._ask("deleteTopic", topic=topic, kept=list(kept))

    def expire(self, files: int) -> Answer:
        """Let the first files of the log expire, with what leads to them: `{"deleted", "min"}`."""
        return self._ask("expire", files=files)

    def read(
        self,
        keys: Iterable[Sequence[str]] = (),
        times: int = 3,
        *,
        brief: bool = False,
        contents: bool = False,
        queues: Iterable[tuple[str, int]] = (),
    ) -> Answer:
        """Everything the store serves.

        `offsets`; `commitLog` = [place, size] or [place, length, verdict]; `records` = [place, topic, queue id, queue
        offset, store timestamp, tags code]; `queues` with min, max, edges, pulls, messages, byTime; `keys` = [topic,
        key, [physical offsets], further], for all keys in the log and those given as (topic, key) or (topic, key,
        type). `times`: at how many store timestamps of each queue the offset by time is asked for.
        A queue that a question threw on has an `error` alone. `brief`: without edges, pulls, times and keys.
        `contents`: each queue's messages as a client decodes them too: [queue offset, fields].
        `queues`: (topic, queue id) of more queues than the store lists and the walk over the log leads to.
        """
        named = {"keys": [list(key) for key in keys], "queues": [list(name) for name in queues]}
        return self._noted(self._ask("read", 300, times=times, brief=brief, contents=contents, **named))

    def get(
        self, topic: str, queue_id: int, queue_offsets: Iterable[int], *, count: int = 32, tags: str | None = None
    ) -> Answer:
        """DefaultMessageStore.getMessage at each offset: `{"min", "max", "rows"}`.

        A row: [queue offset, status, next offset, message count, [physical offsets]]. `tags` is a subscription such
        as "TagA || TagB".
        """
        wanted = list(queue_offsets)
        return self._ask("get", 300, topic=topic, queueId=queue_id, queueOffsets=wanted, count=count, tags=tags)

    def query(self, topic: str, key: str, *, kind: str | None = None, count: int = 64, **times: int) -> Answer:
        """DefaultMessageStore.queryMessage: `{"served", "indexed"}`, physical offsets; `begin` and `end` in ms."""
        return self._noted(self._ask("query", topic=topic, key=key, type=kind, count=count, **times))

    def offsets_by_time(self, topic: str, queue_id: int, times_ms: Iterable[int]) -> list[Answer]:
        """The offset by time, from 5.1.1 on also with both boundaries."""
        rows: list[Answer] = self._ask("offsetByTime", topic=topic, queueId=queue_id, times=list(times_ms))["rows"]
        return rows

    def shutdown(self, *, patient: bool = False) -> Answer:
        """Stop cleanly: `{"shutdownTrouble", "shutdownMs", "abortAfter"}`.

        The broker's own sleep in it, up to 3 s, is cut short unless `patient`.
        """
        self.over = True
        answer = self._ask("shutdown", patient=patient)
        if answer["shutdownTrouble"] == "does not end":
            self._judge._was_stuck()
        return answer

    def again(self) -> "OpenStore":
        """The same directory, opened once more in the same way."""
        return OpenStore(self._judge, f"{self._name} again", self.directory, self._settings, start=True)

    def abandon(self) -> None:
        """Let the broker stop in the background: what it still writes into the directory is of no interest.

        A 5.5.1 with queues in RocksDB may end its process as it stops, under the next store: it is killed at once.
        """
        self.over = True
        if self._judge.version == "5.5.1" and "RocksDB" in self._settings["config"].get("storeType", ""):
            self.halt()
        else:
            self._ask("abandon")

    def halt(self) -> None:
        """Kill the broker's process without any ending (Runtime.halt); the judge starts a new one when needed."""
        self.over = True
        self._judge.program.ask("halt")
        self._judge.program.wait_end()

    def crash(self) -> None:
        """Send SIGKILL to the broker's process while another thread asks it something; `kill` then ends it."""
        self._judge.program.crash()

    def kill(self) -> None:
        """End the broker's process with SIGKILL; the judge starts a new one when needed."""
        self.over = True
        self._judge.program.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.over:
            self.shutdown()

    def _ask(self, op: str, timeout_seconds: float = 300, **fields: Any) -> Answer:
        return self._judge.program.ask(op, timeout_seconds, store=self._name, **fields)

    def _noted(self, answer: Answer) -> Answer:
        if answer["stuck"]:
            self._judge._was_stuck()
        return answer


class _Report(dict[str, Any]):
    """Where something is asked for that a broker that did not start cannot tell, says why it did not start."""

    def __missing__(self, key: str) -> Any:
        trouble = {name: self.get(name) for name in ("load", "loadTrouble", "startTrouble", "filesAfter")}
        raise KeyError(key, trouble)


def _encoded(message: Message) -> Answer:
    encoded = dict(message)
    if isinstance(encoded.get("body"), bytes):
        encoded["body"] = _base64(encoded["body"])
    for kind in ("batch", "innerBatch"):
        if kind in encoded:
            encoded[kind] = [_encoded(part) for part in encoded[kind]]
    return encoded


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def setting_texts(config: Mapping[str, object]) -> dict[str, str]:
    """Settings as a broker's file has them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}


def served_places(read: Mapping[str, Any]) -> dict[tuple[str, int, int], int]:
    """Where in the log each message lies that `getMessage` gives, by topic, queue id and queue offset."""
    return {
        (queue["topic"], queue["queueId"], row[0]): row[2]
        for queue in read["queues"]
        for row in queue["messages"]
        if row[1] == "FOUND"
    }
