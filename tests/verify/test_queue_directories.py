"""A directory among the files of a queue stops brokers up to 5.0.0; later ones pass over it."""

from __future__ import annotations

import pytest

from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.0.0", "5.1.4"])
@pytest.mark.parametrize("name", ["77", "lost+found"])
def test_a_directory_among_the_files_of_a_queue(golden_copy: Unpacked, version: str, name: str) -> None:
    path = golden_copy("4.9.7-clean-basic")
    (path / "consumequeue/Audit/lost+found").mkdir()
    before = above_note(verified(path, version)[1])
    (path / "consumequeue/Audit/0" / name).mkdir()
    findings = above_note(verified(path, version)[1]) - before
    assert findings == ({} if version == "5.1.4" else {"consumequeue.stray-file": 1})
