"""What a whole broker keeps beside its store, as far as a store alone does not: its topics and consumers' offsets."""

import json
import time
from pathlib import Path
from typing import Any

QUEUES = 4
GROUP, RETRY = "shop", "%RETRY%"
OWN_GROUP = "SELF_TEST_C_GROUP"
SYSTEM = (
    "BenchmarkTest",
    "DefaultCluster",
    "DefaultCluster_REPLY_TOPIC",
    "OFFSET_MOVED_EVENT",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "SELF_TEST_TOPIC",
    "TBW102",
)
SINCE_5 = (
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
)
QUEUES_OF = {"SCHEDULE_TOPIC_XXXX": 18}


class BrokerConfig:
    """config/topics.json and config/consumerOffset.json of one store.

    Each write keeps the file before as its `.bak`, as a broker's does.
    """

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.attributes: dict[str, dict[str, str]] = {}
        self.offsets: dict[str, dict[int, int]] = {}
        self.clock_ms = 0
        """By how much the broker's clock is ahead."""
        self._changed_ms = 0
        self._counter = 0
        self._groups: set[str] = set()

    def create(self, topic: str, **attributes: str) -> None:
        self.topics.append(topic)
        self._changed()
        if topic.startswith(RETRY):  # only a group that consumes has one
            self.offsets.setdefault(f"{topic}@{topic.removeprefix(RETRY)}", {0: 0})
        self.attributes[topic] = {name.replace("_", "."): value for name, value in attributes.items()}

    def delete(self, topic: str, *, with_offsets: bool) -> None:
        """Delete a topic; since 5.0 what its consumers noted goes with it."""
        self.topics.remove(topic)
        self._changed()
        if with_offsets:
            self.offsets = {name: at for name, at in self.offsets.items() if name.partition("@")[0] != topic}

    def _changed(self) -> None:
        self._changed_ms = int(time.time() * 1000) + self.clock_ms

    def load(self, path: Path) -> None:
        """What a broker knows that starts on older files."""
        folder = path / "config"
        content = json.loads((folder / "topics.json").read_text())
        table, self._changed_ms = content["topicConfigTable"], content["dataVersion"]["timestamp"]
        known = {name: entry for name, entry in table.items() if name not in (*SYSTEM, *SINCE_5)}
        self.topics = list(known)
        self.attributes = {name: entry.get("attributes", {}) for name, entry in known.items()}
        offsets = json.loads((folder / "consumerOffset.json").read_text())["offsetTable"]
        self.offsets = {name: {int(queue): at for queue, at in queues.items()} for name, queues in offsets.items()}
        groups = json.loads((folder / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
        self._groups = groups.keys() - {OWN_GROUP}

    def kept(self, *, is_five: bool) -> list[str]:
        """All names that topics.json has."""
        return [*self.topics, *SYSTEM, *(SINCE_5 if is_five else ())]

    def write_topics(self, path: Path, *, is_five: bool) -> None:
        self._counter += 1
        if not is_five:  # it reads no attributes, and so writes none
            self.attributes = {}
        table = {
            name: {
                **({"attributes": self.attributes.get(name, {})} if is_five else {}),
                "order": False,
                "perm": 6,
                "readQueueNums": QUEUES_OF.get(name, QUEUES),
                "topicFilterType": "SINGLE_TAG",
                "topicName": name,
                "topicSysFlag": 0,
                "writeQueueNums": QUEUES_OF.get(name, QUEUES),
            }
            for name in sorted(self.kept(is_five=is_five))
        }
        version = {"counter": self._counter, **({"stateVersion": 0} if is_five else {}), "timestamp": self._changed_ms}
        self._write(path / "config" / "topics.json", {"dataVersion": version, "topicConfigTable": table})

    @staticmethod
    def close(path: Path) -> None:
        """At its end a 5.x writes topics.json once more: what was before is in no file then."""
        file = path / "config" / "topics.json"
        file.with_name(f"{file.name}.bak").write_bytes(file.read_bytes())

    def write_groups(self, path: Path) -> None:
        """The groups of consumers: a broker's own, and those that have consumed."""
        self._groups |= {name.partition("@")[2] for name in self.offsets}
        names = [OWN_GROUP, *sorted(self._groups)]
        group = {"consumeEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1, "brokerId": 0}
        version = {"counter": 1, "timestamp": 1_795_000_000_000}
        content = {
            "dataVersion": version,
            "subscriptionGroupTable": {name: {"groupName": name, **group} for name in names},
        }
        self._write(path / "config" / "subscriptionGroup.json", content)

    def write_offsets(self, path: Path) -> None:
        table = {name: {str(queue): at for queue, at in queues.items()} for name, queues in self.offsets.items()}
        self._write(path / "config" / "consumerOffset.json", {"offsetTable": table})

    @staticmethod
    def _write(file: Path, content: dict[str, Any]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent="\t", separators=(",", ":"))
        if file.exists():
            if file.read_text() == text:
                return
            file.with_name(f"{file.name}.bak").write_bytes(file.read_bytes())
        file.write_text(text)
