"""Commands keep `--max-memory` over large stores under a limit of the operating system, and print the same."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.stores import QUEUE_COUNT, write_store
from tests.commands.transcripts import Ran, rmqtool
from tests.memory_group import limited, limited_command
from tests.remoting_server import serving
from tests.replay.broker_stub import BrokerStub
from tests.replication.fake_master import FakeMaster

MIB = 1 << 20
MESSAGES = 600_000
QUEUES = 100_000
FEW_QUEUES = 2_000
SMALL_QUEUES = 160
EDGE_MIB = 8
"""The least value is told in steps of so much: what the program itself takes may be right at the edge of one."""
COMMANDS = (
    ("verify", 128),
    ("dump --format jsonl", 176),
    ("forecast", 176),
    ("recover --full --dry-run", 176),
    ("rebuild --dry-run", 176),
    ("salvage --dry-run", 176),
    ("stats --by queue", 128),
    ("search order-0000471[0-9] --in keys", 128),
)
COMMANDS_AFTER_CLEAN_STOP = (
    ("watch --once --from-start --max-rate 1G", 128),
    ("convert --queues rocksdb --dry-run", 176),
)
CHECKS_OF_QUEUES = ("verify", "forecast --broker-version 5.5.1", "stats --by queue")
COMMANDS_OF_QUEUES = (
    *CHECKS_OF_QUEUES,
    "dump --format jsonl",
    "search order-0000471[0-9] --in keys",
    "recover --full --dry-run",
    "rebuild --dry-run",
    "salvage --dry-run",
)
COMMANDS_OF_EACH_KIND = (
    "dump {store} --format jsonl",
    "search {store} order-0000001[0-9] --in keys",
    "diff {store} {store}",
    "watch {store} --once --from-start --max-rate 1G",
    "recover {store} --full --dry-run",
    "rebuild {store} --dry-run",
    "salvage {store} --dry-run",
    "patch {store}/commitlog/00000000000000000000 --at 0 --set flag=5 --fix-crc --dry-run",
    "convert {store} --queues rocksdb --dry-run",
    "extract {store} --topic TopicTest* --output {new}",
    "merge {store} --output {new}",
    "evidence {store} --output {new}",
    "report {store} --html {new}",
)
"""Beside those of `CHECKS_OF_QUEUES`, and `browse`, `mirror` and `replay`, which have tests of their own."""
SMALL_LOG = 1 << 20


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores of many records, none of which is in both."""
    folder = tmp_path_factory.mktemp("stores")
    for name, body_length in (("a", 100), ("b", 101)):
        write_store(folder / name, MESSAGES, body_length, 64 * MIB)
    return folder / "a", folder / "b"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many records after a clean stop."""
    store = tmp_path_factory.mktemp("stores") / "stopped"
    write_store(store, MESSAGES, 100, 64 * MIB)
    assert rmqtool("recover", store, "--yes").code == 0
    return store


@pytest.fixture(scope="module")
def many_queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of_queues(tmp_path_factory.mktemp("stores") / "many", QUEUES)


@pytest.fixture(scope="module")
def few_queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of_queues(tmp_path_factory.mktemp("stores") / "few", FEW_QUEUES)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "limit_mib"), COMMANDS)
def test_a_command_keeps_its_limit_over_many_records(command: str, limit_mib: int, stores: tuple[Path, Path]) -> None:
    name, *options = command.split()
    check(limit_mib, name, stores[0], *options)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "limit_mib"), COMMANDS_AFTER_CLEAN_STOP)
def test_a_command_for_stopped_stores_keeps_its_limit_over_many_records(
    command: str, limit_mib: int, stopped: Path
) -> None:
    name, *options = command.split()
    check(limit_mib, name, stopped, *options)


@pytest.mark.slow
def test_a_comparison_of_logs_without_a_common_message_keeps_its_limit(stores: tuple[Path, Path]) -> None:
    check(176, "diff", *stores)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store after a clean stop."""
    store = tmp_path_factory.mktemp("stores") / "small"
    write_store(store, 3 * SMALL_QUEUES, 50, SMALL_LOG, topic_count=SMALL_QUEUES // QUEUE_COUNT)
    assert rmqtool("recover", store, "--yes").code == 0
    return store


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS_OF_QUEUES)
def test_a_command_keeps_the_least_limit_that_it_names_for_many_queues(command: str, many_queues: Path) -> None:
    keeps_named_least(command, many_queues)


@pytest.mark.parametrize("command", CHECKS_OF_QUEUES)
def test_a_command_keeps_the_least_limit_that_it_names(command: str, few_queues: Path) -> None:
    keeps_named_least(command, few_queues)


@pytest.mark.parametrize("command", COMMANDS_OF_EACH_KIND)
def test_each_command_keeps_the_least_limit_that_it_names(command: str, small: Path, tmp_path: Path) -> None:
    keeps_least(*command.format(store=small, new=tmp_path / "new").split())


def test_a_replay_keeps_the_least_limit_that_it_names(small: Path) -> None:
    stub = BrokerStub({"New": 4})
    with serving(stub.reply) as stub.address:
        keeps_least("replay", small, "--topic", "TopicTest0", "--map", "TopicTest0=New", "--to", stub.address)
    assert len(stub.stored) == 3 * QUEUE_COUNT


def test_a_mirror_keeps_the_least_limit_that_it_names(small: Path, tmp_path: Path) -> None:
    first = min((small / "commitlog").iterdir()).read_bytes()
    end, copy = len(first.rstrip(b"\0")) - 100, tmp_path / "copy"
    with FakeMaster(first, SMALL_LOG) as master:
        words = ("mirror", master.address, copy, "--until", end, "--build", "--log-file-size", SMALL_LOG)
        keeps_least(*words)
        ran = limited_run(176, *words)  # the copy has files now, of which each counts
    assert ran.returncode == 0, ran.stderr
    assert len(list((copy / "consumequeue").glob("*/*"))) == SMALL_QUEUES


def test_the_browser_keeps_the_least_limit_that_it_names(small: Path) -> None:
    refused = on_terminal(64, "browse", small, "--max-memory", "20M")
    match = re.search(r"at least (\d+)M; 20M is too little", refused[1])
    assert match is not None, refused
    limit_mib = int(match[1]) + EDGE_MIB
    code, screen = on_terminal(limit_mib, "browse", small, "--max-memory", f"{limit_mib}M")
    assert code == 0, screen[-2000:]
    assert "TopicTest0" in screen


def on_terminal(limit_mib: int, *arguments: object) -> tuple[int, str]:
    """Run a command in a group and on a terminal on which somebody types q once it shows topics; its screen."""
    near, far = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", "TZ": "UTC"}
    shown = b""
    with limited_command(limit_mib * MIB, *arguments) as command:
        with subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=environment) as process:
            os.close(far)
            with suppress(OSError):  # the terminal's end
                while block := os.read(near, 65536):
                    if b"TopicTest0" in block:
                        os.write(near, b"q")
                    shown += block
        os.close(near)
    return process.returncode, shown.decode("utf-8", "replace")


def store_of_queues(root: Path, queue_count: int) -> Path:
    """A store of three messages a queue, in small files."""
    topic_count = queue_count // QUEUE_COUNT
    write_store(root, 3 * queue_count, 50, 64 * MIB, topic_count=topic_count, consumequeue_file_size=6000)
    return root


def keeps_named_least(command: str, store: Path) -> None:
    """A command refuses too little at once, and ends under a limit of the least that it names."""
    name, *options = command.split()
    keeps_least(name, store, *options)


def keeps_least(*arguments: object) -> None:
    """See `keeps_named_least`."""
    limit_mib, refusals = 20, 0
    while (ran := limited_run(limit_mib, *arguments)).returncode == 2:
        refusals += 1
        match = re.search(r"at least (\d+)M; \d+M is too little", ran.stderr)
        assert match is not None, ran.stderr
        assert not ran.stdout
        limit_mib = int(match[1]) + EDGE_MIB
    assert ran.returncode in {0, 3}, (limit_mib, ran.stderr)
    assert 1 <= refusals <= 2


def limited_run(limit_mib: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run under a limit that the command knows; what it refuses is refused in a group that would hold it."""
    return limited(max(limit_mib, 64) * MIB, *arguments, "--max-memory", f"{limit_mib}M")


def check(limit_mib: int, *arguments: object) -> None:
    """A command ends under a limit, and prints what it prints without."""
    kept = limited(limit_mib * MIB, *arguments, "--max-memory", f"{limit_mib}M")
    free = rmqtool(*arguments)
    assert _steady(Ran(kept.returncode, kept.stdout, "")) == _steady(free._replace(err="")), kept.stderr


def _steady(ran: Ran) -> Ran:
    return ran._replace(out=re.sub(r"\d+(\.\d+)? (ms|s|seconds)\b|^\S+Z (?=started)", "", ran.out))
