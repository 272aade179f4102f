"""Kills exports that run at the same time, again and again, and looks whether each row is in the table once.

`python -m tests.pipeline.export_campaign TARGET --kills 50`; TARGET is local, s3, delta or iceberg. Three processes
export the same stores into one target, while the stores grow; one after the other is killed at a random moment, half
of them with Java and half of them without it, and started again. At the end one run is left alone.

`--fleet 198` takes so many stores, which do not grow, and beside them two live brokers to which a producer sends
messages; then business messages are exported, and each that a broker has accepted must be in the table once.
`--batches 20` goes on until so many batches were noted.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pyarrow.parquet
from pyarrow import fs

import rmqtool as library
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.broker.test_transactions import CONFIG
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool
from tests.golden_stores import names, unpack
from tests.pipeline.cluster import QUICK_JAVA, ROOT, family, kill
from tests.remote.s3_server import BUCKET, KEYS, s3_server

TARGETS: Final = ("local", "s3", "delta", "iceberg")
RUNS: Final = 3
DEADLINE_S: Final = 600
SDK: Final = "software.amazon.awssdk"
S3_PACKAGES: Final = ("org.apache.hadoop:hadoop-aws:{hadoop}", f"{SDK}:s3:2.35.4", f"{SDK}:s3-transfer-manager:2.35.4")
"""What S3A needs; the bundle of all of the SDK has 600 MB."""
GENERATED: Final = ("basic", "batch", "delay", "transaction", "ipv6", "lmq", "keys-index", "many-files", "crashed")
LIVE: Final = ("4.9.7", "5.5.0")
TOPIC: Final = "Sales"
TOPICS: Final = {TOPIC: {"readQueueNums": 2, "writeQueueNums": 2}}
STATES: Final = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE")


def make_fleet(folder: Path, count: int) -> list[Path]:
    """Golden stores and generated ones, half of each; none whose log a damage made unreadable for brokers."""
    healthy = [name for name in names() if "damage" not in name]
    stores = [unpack(name, folder) for name in healthy[: count // 2]]
    for number in range(count - len(stores)):
        stores.append(folder / f"generated-{number:03}")
        make_store(RECIPES[GENERATED[number % len(GENERATED)]], stores[-1], "5.5.0", seed=number)
    return stores


class Growth:
    """Stores that grow: of each, one after the other, some messages more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        for number, recipe in enumerate(("basic", "many-files")):
            make_store(RECIPES[recipe], self.folder / recipe, "5.5.0", seed=number)
        return self

    def grow(self) -> None:
        words = ("--topic", "Audit", "--queue-id", "0", "--body", "more", "--count", "3", "--end", "clean")
        for store in self.folder.iterdir():
            assert rmqtool("append", store, *words).code == 0

    def __exit__(self, *_: object) -> None:
        pass


class Sales(Growth):
    """Stores of two live brokers, to which a producer sends, beside a fleet of others.

    Attributes:
        sent: bodies of the messages that a broker has accepted and that are not rolled back.
    """

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder)
        self.count, self.sent = count, list[bytes]()
        self._stack, self._brokers = ExitStack(), dict[str, WholeBroker]()

    def __enter__(self) -> Self:
        make_fleet(self.folder, self.count)
        for version in LIVE:
            broker = WholeBroker(version, self.folder / f"live-{version}", CONFIG, TOPICS)
            self._brokers[version] = self._stack.enter_context(broker)
            broker.await_route(TOPIC)
        return self

    def grow(self) -> None:
        for version, broker in self._brokers.items():
            body = f"{version}-{len(self.sent)}".encode()
            broker.send(TOPIC, 0, body)
            broker.send(TOPIC, 1, body + b" delayed", {"DELAY": "1"})
            for state in STATES:
                broker.transact(TOPIC, body + state.encode(), state)
            self.sent += [body, body + b" delayed", body + STATES[0].encode()]

    def __exit__(self, *_: object) -> None:
        """Stop the brokers, once consumers get all."""
        with self._stack:
            for version, broker in self._brokers.items():
                ours = {body for body in self.sent if body.startswith(version.encode())}
                assert {*broker.bodies_until(TOPIC, len(ours), DEADLINE_S)} == ours


def hadoop_version() -> str:
    """That of the installed Spark."""
    import pyspark

    jars = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return next(iter(jars)).stem.rpartition("-")[2]


def s3_settings(port: int) -> list[str]:
    """Settings with which Spark writes to the S3 server on the loopback."""
    s3a = "spark.hadoop.fs.s3a"
    return [
        "spark.jars.packages=" + ",".join(S3_PACKAGES).format(hadoop=hadoop_version()),
        f"spark.jars.excludes={SDK}:bundle,org.slf4j:slf4j-api",  # Spark has the second
        f"{s3a}.endpoint=http://127.0.0.1:{port}",
        f"{s3a}.path.style.access=true",
        f"{s3a}.endpoint.region=us-east-1",
    ]


@dataclass
class Campaign:
    """Exports of some stores into one target.

    Attributes:
        packages: a directory with a Spark that can load the packages of the table's format, and with what they need.
        conf: settings of Spark.
        fleet: stores beside those of live brokers, whose business messages are exported; 0 without brokers.
        in_export: kills of a run that had the lease.
    """

    folder: Path
    target: str
    form: str
    packages: Path
    conf: list[str]
    fleet: int = 0
    kills: int = 0
    in_export: int = 0
    refusals: int = 0
    _alive_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def table(self) -> str:
        return "business_messages" if self.fleet else "messages"

    def run(self, kills: int, batches: int = 0) -> str:
        """Kill runs, let one end, and compare the table with the stores; what came to pass.

        Args:
            batches: that are noted before the last run, of a target on this machine.
        """
        failures: queue.Queue[BaseException] = queue.Queue()
        noted = Path(self.target, "_rmqtool", self.table, "batches")
        folder = self.folder / "stores"
        with Sales(folder, self.fleet) if self.fleet else Growth(folder) as growth:
            before = after = self._once()  # loads packages: two that load them at once are in each other's way
            growth.grow()
            while after == before:  # a broker flushes now and then
                started = time.monotonic()
                after = self._once()
                self._alive_s = RUNS * (time.monotonic() - started)  # they share the machine
            slots = [threading.Thread(target=self._slot, args=(failures,)) for _ in range(RUNS)]
            for slot in slots:
                slot.start()
            while failures.empty() and (self.kills < kills or (batches and len([*noted.iterdir()]) < batches)):
                growth.grow()
                self._ended.wait(1)
            self._ended.set()
            for slot in slots:
                slot.join()
        if not failures.empty():
            raise failures.get()
        count = self._once()
        expected = self._expected(folder, growth)
        rows = Counter((row["store"], row["physical_offset"]) for row in self._rows())
        lost, twice = expected - rows, rows - expected
        assert lost + twice == Counter(), f"{lost.total()} rows lost, {twice.total()} too many"
        stores = len([*folder.iterdir()])
        return (
            f"{self.form}: {stores} stores, {self.kills} kills ({self.in_export} of a run that wrote), "
            f"{count} batches, {self.refusals} refused, {expected.total()} rows, each once"
        )

    def _expected(self, folder: Path, growth: Growth) -> Counter[tuple[str, int]]:
        """The rows of all stores; those of live brokers are what was sent to them."""
        expected: Counter[tuple[str, int]] = Counter()
        bodies: Counter[bytes] = Counter()
        for store in folder.iterdir():
            opened = library.open(store)
            table = opened.business_messages if self.fleet else opened.messages
            rows = table(["physical_offset", "topic", "body"]).read_all().to_pylist()
            expected.update((str(store), row["physical_offset"]) for row in rows)
            is_live = store.name.startswith("live")
            bodies.update(row["body"] for row in rows if is_live and row["topic"] == TOPIC)
        if isinstance(growth, Sales):
            assert bodies == Counter(growth.sent)
        return expected

    def _once(self) -> int:
        """How many batches there are after a run that is left alone."""
        running = self._start("--once")
        output, _ = running.communicate(timeout=DEADLINE_S)
        assert running.returncode == 0, self._errors()
        return int(output.split()[-1])

    def _errors(self) -> str:
        return (self.folder / "errors.log").read_text("utf-8", "replace")[-4_000:]

    def _slot(self, failures: queue.Queue[BaseException]) -> None:
        """Start a run, kill it, and so on."""
        try:
            while not self._ended.is_set():
                self._killed()
        except BaseException as error:  # noqa: BLE001 - it is raised by `run`
            failures.put(error)

    def _killed(self) -> None:
        running = self._start()
        lines: list[str] = []
        ready = threading.Event()

        def listen() -> None:
            for line in running.stdout or ():
                lines.append(line.strip())
                ready.set()
            ready.set()

        listening = threading.Thread(target=listen)
        listening.start()
        assert ready.wait(DEADLINE_S)
        time.sleep(random.uniform(0.1, self._alive_s))
        assert running.poll() is None, self._errors()
        kill(family(running.pid) if random.random() < 0.5 else [running.pid])
        running.wait()
        listening.join(timeout=DEADLINE_S)
        if running.stdout is not None:
            running.stdout.close()
        with self._lock:
            self.kills += 1
            self.refusals += lines.count("refused")
            self.in_export += lines[-1] == "writes"

    def _start(self, *words: str) -> subprocess.Popen[str]:
        options = [word for setting in self.conf for word in ("--conf", setting)]
        command = [sys.executable, "-m", "tests.pipeline.export_campaign", "run", "--target", self.target]
        command += ["--stores", f"{self.folder}/stores/*", "--form", self.form, "--table", self.table, *options, *words]
        with (self.folder / "errors.log").open("ab") as errors:
            return subprocess.Popen(
                command,
                env={**os.environ, **KEYS, "PYTHONPATH": f"{self.packages / 'spark'}:{ROOT}"},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def _rows(self) -> Iterator[dict[str, Any]]:
        from tests.pipeline.jobs.lake import ROWS

        table = f"{self.target}/{self.table}"
        if self.form in ROWS:
            yield from ROWS[self.form](Path(table), ("store", "physical_offset"))
            return
        place, files = table, fs.LocalFileSystem()
        if "://" in table:
            files, place = bucket(int(self.conf[2].rpartition(":")[2])), table.partition("://")[2]
        for one in files.get_file_info(fs.FileSelector(place, recursive=True)):
            if one.path.endswith(".parquet") and "/." not in one.path:
                with files.open_input_file(one.path) as opened:
                    yield from pyarrow.parquet.ParquetFile(opened).read(["store", "physical_offset"]).to_pylist()


def bucket(port: int) -> fs.S3FileSystem:
    """The S3 server as pyarrow sees it."""
    return fs.S3FileSystem(
        endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True,
        access_key=KEYS["AWS_ACCESS_KEY_ID"], secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )  # fmt: skip


@contextmanager
def campaign_in(folder: Path, target: str, packages: Path, fleet: int = 0) -> Iterator[Campaign]:
    """A campaign against a kind of target, below a directory."""
    caches = [f"spark.jars.ivy={packages}/ivy-{target}", f"spark.driver.extraJavaOptions=-Duser.home={packages}"]
    caches[1] += f" {QUICK_JAVA}"
    (folder / "stores").mkdir(parents=True)
    with ExitStack() as stack:
        if target == "s3":
            port = stack.enter_context(s3_server())
            bucket(port).create_dir(BUCKET)
            yield Campaign(folder, f"s3://{BUCKET}/lake", "parquet", packages, [*s3_settings(port), *caches])
        else:
            form = "parquet" if target == "local" else target
            yield Campaign(folder, str(folder / "lake"), form, packages, caches, fleet)


def export_again_and_again(arguments: argparse.Namespace) -> None:
    """One process that is killed: exports until then, or once."""
    from rmqtool.commands.messages import Messages
    from rmqtool.commands.options.spark import spark
    from rmqtool.errors import RefusedError
    from rmqtool.pipeline.enums import Form
    from rmqtool.pipeline.jobs import lease
    from rmqtool.pipeline.jobs.export import NOTES
    from rmqtool.pipeline.jobs.incremental import IncrementalExport
    from rmqtool.pipeline.jobs.lakehouse import table_settings
    from rmqtool.pipeline.jobs.target_files import HadoopFiles, LocalFiles, TargetFiles
    from rmqtool.pipeline.stores import checked_stores

    form, target, table = Form(arguments.form), arguments.target, arguments.table
    options = {"paths": json.dumps([arguments.stores]), "table": table}
    more = table_settings(form, f"file://{target}", {})
    conf = ["spark.sql.shuffle.partitions=2", "spark.driver.memory=512m", *arguments.conf]
    conf += [f"{name}={value}" for name, value in more.items()]
    take = lease.Lease.take

    def taken(*words: Any) -> lease.Lease:
        own = take(*words)
        say("writes")
        return own

    lease.Lease.take = taken  # type: ignore[method-assign, assignment]
    if not arguments.once:
        lease.WAIT_S = 1.0  # type: ignore[misc]
    with spark("local[2]", conf, Messages(quiet=True)) as session:
        files: TargetFiles = HadoopFiles.open(session, target) if "://" in target else LocalFiles(session)
        while True:
            say("waits")
            now_ms, stores = time.time_ns() // 1_000_000, checked_stores(options)
            try:
                export = IncrementalExport(target, form, table, options, (), stores, now_ms, files)
                export.run(session)
                say("done")
            except RefusedError:
                if arguments.once:
                    raise
                say("refused")
            if arguments.once:
                say(str(len(files.sizes(f"{target}/{NOTES}/{table}/batches"))))
                return


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    """Run a campaign, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=(*TARGETS, "run"))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--fleet", type=int, default=0, help="stores beside those of two live brokers")
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--stores")
    parser.add_argument("--form")
    parser.add_argument("--table")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "run":
        export_again_and_again(arguments)
        return
    with tempfile.TemporaryDirectory(prefix="rmqtool-campaign-") as folder:
        packages = arguments.packages or Path(folder) / "packages"
        if arguments.what in ("delta", "iceberg") and not (packages / "spark").exists():
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages / "spark")]
            subprocess.run([*command, "pyspark==4.1.*"], check=True)
        with campaign_in(Path(folder) / "campaign", arguments.what, packages, arguments.fleet) as campaign:
            sys.stdout.write(f"{arguments.what}: {campaign.run(arguments.kills, arguments.batches)}\n")


if __name__ == "__main__":
    main()
