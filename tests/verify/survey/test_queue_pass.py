"""Units of queues that records only name beside their own (multi-dispatch) are held against those queues' offsets."""

from __future__ import annotations

from rmqtool.formats.consumequeue import UNIT_SIZE
from tests.repair.salvage.trial import healthy, overwrite
from tests.verify.stores import above_note, verified

QUEUE = "consumequeue/%LMQ%device-1/0/00000000000000000000"


def test_a_wrong_tags_code_is_the_units_fault_and_not_the_records() -> None:
    store = healthy("lmq", "5.5.0")
    files = dict(store.files)
    overwrite(files, QUEUE, 12 * UNIT_SIZE + 12, 8)
    found = verified(store.store(files), "5.5.0")[1]
    assert above_note(found) == {"consumequeue.wrong-tags-code": 1}


def test_a_unit_at_another_place_is_told_by_the_offset_in_its_own_queue() -> None:
    store = healthy("lmq", "5.5.0")
    files = dict(store.files)
    raw = files[QUEUE]
    at = 12 * UNIT_SIZE
    one, two = raw[at : at + UNIT_SIZE], raw[at + UNIT_SIZE : at + 2 * UNIT_SIZE]
    files[QUEUE] = raw[:at] + two + one + raw[at + 2 * UNIT_SIZE :]
    found = verified(store.store(files), "5.5.0")[1]
    assert above_note(found)["consumequeue.wrong-position"] == 2
    assert not any(name.startswith("commitlog.") for name in above_note(found))
    assert {each.queue_offset for each in found if each.id.endswith("wrong-position")} == {12, 13}
    assert {each.expected for each in found if each.id.endswith("wrong-position")} == {"13", "12"}
