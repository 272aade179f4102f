"""What `mirror` says of a real master in controller mode, which speaks another protocol."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.broker.mirror_run import rmqtool
from tests.broker.toolchain import java_command
from tests.broker.versions import version_named

PROGRAM = Path(__file__).parent / "programs" / "ControllerMaster.java"


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_master_in_controller_mode_is_refused_by_name(tmp_path: Path, version: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = java_command(version_named(version), str(PROGRAM), tmp_path)
    master = subprocess.Popen(
        [*command, str(tmp_path / "master"), str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert master.stdout is not None
        assert next(line for line in master.stdout if line.startswith("ready")).split()[1] != "0"
        mirror = rmqtool("mirror", f"127.0.0.1:{port}", str(tmp_path / "copy"), "--until", "now")
        _, errors = mirror.communicate(timeout=120)
    finally:
        master.communicate("\n", timeout=600)
    assert mirror.returncode == 4
    assert "enableControllerMode" in errors
    assert list((tmp_path / "copy" / "commitlog").glob("*")) == []
