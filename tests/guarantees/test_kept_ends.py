"""A backup that is restored while no process runs is noticed by the first one that starts.

It finds in EMS["STATE_DIR"] how far each log had come.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from streams import Outgoing, consumer, send, send_many
from streams.chaos.forks import in_fork
from streams.database import remembered
from streams.database.emptied import in_test_process
from streams.log import ends, kept_ends
from streams.log.ends import End
from streams.log.rewinds import MARGIN
from streams.log.sequencer import sequence
from streams.models import Delivery, Message, Partition, Rewind, State, Topic
from streams.observe.audit.walk import audit
from streams.operate.topics import grow
from streams.state_files import alone_with
from streams.steps.sequence import sequence_all
from tests.consuming import Process
from tests.faults import Recorder, statements
from tests.processes import Child, Spawn, wait_for
from tests.rewinding import Backup, Replica

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

# Ten messages are in the backup, and five more are not.
KEPT, LOST = 10, 15
GOES_ON = LOST + MARGIN


@pytest.fixture(autouse=True)
def host(ems_settings, tmp_path, monkeypatch) -> Callable[[str], None]:
    """Go to a host: each one has a state folder of its own, and a new process there."""
    monkeypatch.setattr(kept_ends, "in_test_process", lambda: False)

    def go(name: str) -> None:
        ems_settings(STATE_DIR=str(tmp_path / name))

    go("first")
    return go


def sent(*bodies: Any) -> None:
    send_many([Outgoing("orders", body) for body in bodies])
    while sequence("default").more:
        pass


def stop() -> None:
    """End the process in good order, and begin another one."""
    kept_ends.of("default").keep()
    remembered.forget()


def lose(ending: Callable[[], None] = stop) -> None:
    """Send, end all processes, and restore the backup, which lacks the last five messages."""
    sent(*range(KEPT))
    backup = Replica()
    sent(*range(KEPT, LOST))
    ending()
    backup.promote()
    remembered.forget()


def offsets() -> list[int | None]:
    return list(Message.objects.order_by("offset").values_list("offset", flat=True))


def file() -> Path:
    path = kept_ends.of("default").path
    assert path
    return path


def said(caplog: Any) -> list[str]:
    return [record.ems_event for record in caplog.records if hasattr(record, "ems_event")]


def test_no_offset_is_given_twice_though_nobody_was_running():
    lose()
    sent("new")
    assert offsets() == [*range(KEPT), GOES_ON]
    assert audit("default") == []


def test_it_is_said_as_any_rewind(caplog):
    lose()
    sent("new")
    rewind = Rewind.objects.get()
    assert (rewind.first_offset, rewind.known_offset, rewind.epoch) == (KEPT, LOST, 1)
    (record,) = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert record.ems_event == "log.rewound"


def test_a_consumer_that_starts_notices_it_without_a_message(clean_registry):
    consumer("orders", group="mail", start="earliest")(print)
    lose()
    poller = Process("mail").poller
    poller.step()
    poller.step()
    assert Partition.objects.get().next_offset == GOES_ON


def test_a_group_that_begins_at_the_latest_notices_it(clean_registry):
    lose()
    send("orders", "new")
    consumer("orders", group="late", start="latest")(print)
    Process("late")
    assert offsets() == [*range(KEPT), GOES_ON]


def test_the_task_that_sequences_keeps_it_and_finds_it():
    send_many([Outgoing("orders", n) for n in range(KEPT)])
    backup = Replica()
    assert sequence_all("default") == KEPT
    remembered.forget()
    backup.promote()
    remembered.forget()
    assert sequence_all("default") == KEPT
    assert offsets() == [*range(KEPT + MARGIN, KEPT + MARGIN + KEPT)]


def test_what_was_seen_after_the_last_write_is_within_the_margin():
    sent(*range(KEPT))
    backup = Replica()
    sent(10, 11)
    kept_ends.of("default").keep()
    sent(12, 13, 14)
    remembered.forget()  # kill -9
    backup.promote()
    remembered.forget()
    sent("new")
    assert offsets()[-1] == KEPT + 2 + MARGIN > LOST


def test_a_second_restore_loses_the_jump_and_is_noticed(caplog):
    sent(*range(KEPT))
    backup = Replica()
    sent(*range(KEPT, LOST))
    for _ in range(2):
        stop()
        backup.promote()
        remembered.forget()
        sent("new")
    assert offsets()[-1] == GOES_ON + 1 + MARGIN
    assert Rewind.objects.get().epoch == 2
    assert said(caplog).count("log.rewound") == 2


def test_a_partition_that_was_lost_and_is_made_again_goes_on_beyond_its_end():
    sent("first")
    topic = Topic.objects.get()
    backup = Replica()
    grow(topic, 2, "default")
    for _ in range(3):
        send("orders", "second", partition=1)
    sequence("default")
    stop()
    backup.promote()
    remembered.forget()
    sequence("default")
    stop()
    grow(topic, 2, "default")
    send("orders", "second", partition=1)
    sequence("default")
    assert Message.objects.get(partition__number=1).offset == 3 + MARGIN


# -- who knows nothing, or of another log, changes nothing ---------------------------------------


def test_a_host_that_knows_nothing_gives_the_offsets_again(host):
    """Nothing there tells: the guide says that ems_doctor --rewound is run first."""
    lose()
    host("second")
    sent("new")
    assert offsets()[-1] == KEPT


def test_of_two_hosts_one_that_has_seen_less_jumps_beyond_what_the_other_one_has_seen(host):
    sent(*range(KEPT))
    backup = Replica()
    sent(10, 11)
    stop()
    host("second")
    sent(12, 13, 14)
    stop()
    backup.promote()
    host("first")
    sent("new")
    host("second")
    sent("newer")
    jumped = KEPT + 2 + MARGIN
    assert offsets()[-2:] == [jumped, jumped + 1]
    assert Rewind.objects.count() == 1


def test_a_file_that_knows_less_than_the_database_changes_nothing(host):
    sent(*range(KEPT))
    stop()
    host("second")
    sent(*range(KEPT, LOST))
    host("first")
    sent("new")
    assert offsets() == [*range(LOST + 1)]


def test_a_topic_that_was_deleted_and_created_again_begins_at_0():
    sent(*range(LOST))
    stop()
    old = Topic.objects.get()
    for model in (Message, Partition, Topic):
        model.objects.all().delete()
    remembered.forget()
    Topic(pk=old.pk, name="orders").save(force_insert=True)  # as after a flush, the same id
    sent("new")
    assert offsets() == [0]
    assert not Rewind.objects.exists()


def test_another_database_with_the_same_alias_has_a_file_of_its_own(monkeypatch):
    mine = file()
    monkeypatch.setitem(connection.settings_dict, "NAME", "another")
    remembered.forget()
    assert file() != mine


def test_tests_of_a_project_neither_find_nor_leave_how_far_the_logs_had_come(monkeypatch):
    """Fixtures and serialized_rollback put back the same rows, with a lower end."""
    lose()
    path, before = file(), file().read_bytes()
    monkeypatch.setattr(kept_ends, "in_test_process", in_test_process)
    remembered.forget()
    assert sequence_all("default") == 0
    sent("new")
    kept_ends.of("default").keep()
    assert offsets() == [*range(KEPT + 1)]
    assert not Rewind.objects.exists()
    assert path.read_bytes() == before


# -- the file ------------------------------------------------------------------------------------


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def edit(text: bytes) -> bytes:
        content = json.loads(text)
        change(content)
        return json.dumps(content).encode()

    return edit


DAMAGES = {
    "empty": lambda text: b"",
    "cut": lambda text: text[: len(text) // 2],
    "not JSON": lambda text: b"\0" * len(text),
    "not a dict": lambda text: b"[]",
    "too deep": lambda text: b"[" * 100_000,
    "a higher offset": lambda text: text.replace(b'"offset": 15', b'"offset": 95'),
    "a version without end": lambda text: text.replace(b'"version": 1', b'"version": 1e999'),
    "a version that is none": edited(lambda content: content.update(version="x")),
    "without a checksum": edited(lambda content: content.pop("sha256")),
    "of another database": edited(lambda content: content.update(database="default: other")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_file_changes_nothing_and_is_said_once(damage, caplog):
    lose()
    path, good = file(), file().read_bytes()
    bad = DAMAGES[damage](good)
    assert bad != good
    path.write_bytes(bad)
    remembered.forget()
    caplog.clear()
    sent("new")
    kept_ends.of("default").keep()
    assert offsets() == [*range(KEPT + 1)]
    assert said(caplog) == ["log.ends_unread"]
    # It is put aside, for a person to read, and a new one is begun.
    assert path.with_suffix(".damaged").read_bytes() == bad
    (row,) = json.loads(path.read_text())["logs"]
    assert (row["name"], row["offset"]) == ("orders/0", KEPT + 1)


def test_a_file_of_a_newer_version_changes_nothing_and_is_left_as_it_is(caplog):
    lose()
    newer = edited(lambda content: content.update(version=2))(file().read_bytes())
    file().write_bytes(newer)
    remembered.forget()
    sent("new")
    for _ in range(2):
        kept_ends.of("default").keep()
    assert offsets() == [*range(KEPT + 1)]
    assert said(caplog) == ["log.ends_unread"]
    assert file().read_bytes() == newer


def test_a_folder_that_cannot_be_used_is_said_once_and_stops_nobody(host, tmp_path, caplog):
    (tmp_path / "taken").write_text("a file")
    host("taken")
    for body in range(3):
        sent(body)
        kept_ends.of("default").keep()
    assert offsets() == [0, 1, 2]
    assert said(caplog) == ["log.ends_not_kept"]
    assert "Not a directory" in caplog.text


def test_a_working_directory_that_was_deleted_is_said_once_and_stops_nobody(
    ems_settings, tmp_path, monkeypatch, caplog
):
    release = tmp_path / "release"
    release.mkdir()
    monkeypatch.chdir(release)
    ems_settings(STATE_DIR="ems-state")
    release.rmdir()
    for body in range(3):
        sent(body)
        kept_ends.of("default").keep()
    assert offsets() == [0, 1, 2]
    assert said(caplog) == ["log.ends_not_kept"]
    assert "No such file or directory" in caplog.text


def test_a_full_disk_leaves_the_old_file(monkeypatch, caplog):
    sent(*range(KEPT))
    kept_ends.of("default").keep()
    old = file().read_bytes()
    sent("more")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        kept_ends.of("default").keep()
    assert file().read_bytes() == old
    assert said(caplog) == ["log.ends_not_kept"]
    kept_ends.of("default").keep()
    assert json.loads(file().read_text())["logs"][0]["offset"] == KEPT + 1


def test_a_kill_at_any_moment_of_a_write_leaves_the_old_file_or_the_new_one():
    sent(*range(KEPT))
    backup = Replica()
    sent(*range(KEPT, LOST - 1))
    kept_ends.of("default").keep()
    sent(LOST - 1)

    def write(point: int) -> None:
        left = [point]

        def kill(name: str, _arguments: object) -> None:
            if name.startswith(("open", "os.", "fcntl.")):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        kept_ends.of("default").keep()

    for point in count(1):
        status = in_fork(partial(write, point))
        remembered.forget()
        backup.promote()
        remembered.forget()
        sent("new")
        offset = offsets()[-1]
        assert offset in (LOST - 1 + MARGIN, GOES_ON), f"killed before call {point}"
        if not status:
            break
        # As it was before: the file of the next round knows what this one has known.
        backup.promote()
        remembered.forget()
        ends.remember({Partition.objects.get().pk: End(LOST, 0)}, "default")
    assert point > 5
    assert offset == GOES_ON


def test_of_two_that_write_at_once_none_overwrites_what_the_other_knows():
    first, second = (Topic.objects.create(name=name) for name in ("orders", "mails"))
    places = [topic.partitions.get().pk for topic in (first, second)]

    def write(place: int) -> None:
        for offset in range(1, 51):
            ends.remember({place: End(offset, 0)}, "default")
            kept_ends.of("default").keep(patience=10.0)

    children = []
    for place in places:
        connection.close()
        if not (pid := os.fork()):
            try:
                write(place)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    remembered.forget()
    kept_ends.of("default").recall(places)
    assert ends.seen("default") == dict.fromkeys(places, End(50, 0))


def test_while_another_process_writes_it_is_left_for_the_next_time():
    sent("first")
    with alone_with(file().with_suffix(".lock")):
        kept_ends.of("default").keep()
        assert not file().exists()
    kept_ends.of("default").keep()
    assert file().exists()


def test_a_child_that_is_forked_during_a_write_keeps_nobody_from_writing(tmp_path):
    ready, go = os.pipe()
    with alone_with(tmp_path / "lock"):
        child = os.fork()
        if not child:
            os.read(ready, 1)
            os._exit(0)
    try:
        with alone_with(tmp_path / "lock") as alone:
            assert alone
    finally:
        os.write(go, b".")
        os.waitpid(child, 0)
        os.close(ready)
        os.close(go)


def test_deleted_topics_do_not_let_the_file_grow_without_end(monkeypatch):
    monkeypatch.setattr(kept_ends, "ABSENT_AT_MOST", 2)
    for number in range(4):
        send(f"topic-{number}", "one")
        sequence("default")
        kept_ends.of("default").keep()
        for model in (Message, Partition, Topic):
            model.objects.all().delete()
        remembered.forget()
    sent("last")
    kept_ends.of("default").keep()
    names = [row["name"] for row in json.loads(file().read_text())["logs"]]
    assert names == ["topic-2/0", "topic-3/0", "orders/0"]


class Clock:
    """Replaces the clock of the module; only ``now`` moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    replaced = Clock()
    monkeypatch.setattr(kept_ends, "time", replaced)
    return replaced


def statements_when_due() -> int:
    recorder = Recorder()
    with statements(recorder):
        kept_ends.of("default").keep_if_due()
    return len(recorder.seen)


def newer_file(tmp_path: Path) -> None:
    file().parent.mkdir()
    file().write_text('{"version": 2}')


def no_folder(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("a file")


@pytest.mark.parametrize("obstacle", [no_folder, newer_file])
def test_what_cannot_be_written_is_tried_again_after_a_minute(obstacle, clock, tmp_path):
    obstacle(tmp_path)
    sent("first")
    assert statements_when_due() == 1
    for _ in range(int(kept_ends.UNUSABLE_SECONDS / kept_ends.EVERY_SECONDS) - 1):
        clock.now += kept_ends.EVERY_SECONDS
        assert statements_when_due() == 0
    clock.now += kept_ends.EVERY_SECONDS
    assert statements_when_due() == 1


def test_a_large_file_is_written_less_often(clock, monkeypatch):
    monkeypatch.setattr(kept_ends, "LARGE", 4)
    grow(Topic.objects.create(name="orders"), 8, "default")
    for key in range(2):
        sent(key)
        assert statements_when_due() == 1
        clock.now += 2 * kept_ends.EVERY_SECONDS - 0.5
        sent(key)
        assert statements_when_due() == 0
        clock.now += 0.5
    # However large it is: what was given since must be within the margin.
    monkeypatch.setattr(kept_ends, "LARGE", 0.001)
    assert statements_when_due() == 1
    sent("last")
    clock.now += kept_ends.AT_MOST_SECONDS
    assert statements_when_due() == 1


def test_a_message_costs_no_statement_more():
    sent("first")
    stop()
    sent("second")  # the first look of a process at the logs finds them in the file
    recorder = Recorder()
    with statements(recorder):
        sequence("default", [Partition.objects.get().pk])
    with_file = len(recorder.seen)
    file().unlink()
    remembered.forget()
    recorder.seen.clear()
    with statements(recorder):
        sequence("default", [Partition.objects.get().pk])
    assert len(recorder.seen) == with_file


# -- real processes, and a real restore ----------------------------------------------------------

CONSUME = """
import sys
from django.core.management import call_command
from streams import consumer
@consumer("orders", group="mail", start="earliest")
def handle(message):
    # By one write: a line of the log could come between the text and its end.
    sys.stdout.write(f"handled {message.partition} {message.offset} {message.body}\\n")
call_command("ems_consume")
"""


NEVER_DUE = """
from streams.log.kept_ends import KeptEnds
KeptEnds.keep_if_due = lambda self: None
"""


def test_a_process_that_ends_in_good_order_keeps_all_that_it_has_seen(spawn: Spawn):
    child = spawn(NEVER_DUE + CONSUME)
    child.expect("threads")
    send_many([Outgoing("orders", n) for n in range(KEPT)])
    wait_for(lambda: Delivery.objects.filter(state=State.DONE, last_offset=KEPT - 1).exists())
    child.terminate()
    assert child.wait() == 0
    (row,) = json.loads(file().read_text())["logs"]
    assert (row["name"], row["offset"]) == ("orders/0", KEPT)


def kept_and_lost(spawn: Spawn) -> tuple[Child, Backup]:
    """Return a consumer that has handled ten messages, and a dump that has five of them."""
    sent(*(f"kept-{n}" for n in range(5)))
    remembered.forget()
    backup = Backup()
    child = spawn(CONSUME)
    send_many([Outgoing("orders", f"lost-{n}") for n in range(5)])
    wait_for(lambda: Delivery.objects.filter(state=State.DONE, last_offset=9).exists())
    return child, backup


@pytest.mark.mysql
@pytest.mark.parametrize("end", [Child.terminate, Child.kill], ids=["stopped", "killed"])
def test_a_receiver_finds_no_offset_with_two_messages_after_a_restore(spawn: Spawn, end):
    """All consumers are stopped; the tables are dropped, and made again from a dump."""
    before, backup = kept_and_lost(spawn)
    if end is Child.kill:
        wait_for(lambda: file().exists() and '"offset": 10' in file().read_text())
    end(before)
    before.wait()
    backup.restore()
    after = spawn(CONSUME)
    send_many([Outgoing("orders", f"new-{n}") for n in range(5)])
    after.expect("new-4")
    after.terminate()
    assert after.wait() == 0
    messages: dict[tuple[str, str], set[str]] = {}
    for line in (before.text() + after.text()).splitlines():
        if line.startswith("handled"):
            _, partition, offset, body = line.split()
            messages.setdefault((partition, offset), set()).add(body)
    assert {place: bodies for place, bodies in messages.items() if len(bodies) > 1} == {}
    assert {body for bodies in messages.values() for body in bodies} == {
        f"{kind}-{n}" for kind in ("kept", "lost", "new") for n in range(5)
    }
    assert "orders/0 was rewound: it ended at offset 5, and had reached 10" in after.text()
    assert Rewind.objects.get().next_offset == 10 + MARGIN
    assert audit("default") == []


@pytest.mark.exhaustive
@pytest.mark.mysql
def test_of_two_processes_that_start_at_once_after_a_restore_one_jumps(spawn: Spawn):
    before, backup = kept_and_lost(spawn)
    before.terminate()
    assert before.wait() == 0
    backup.restore()
    send_many([Outgoing("orders", f"new-{n}") for n in range(5)])
    both = [spawn(CONSUME), spawn(CONSUME)]
    for child in both:
        child.expect("threads")  # it is about to start them
    wait_for(lambda: Delivery.objects.filter(state=State.DONE, last_offset=14 + MARGIN).exists())
    for child in both:
        child.terminate()
    assert [child.wait() for child in both] == [0, 0]
    assert Rewind.objects.count() == 1
    assert offsets() == [*range(5), *range(10 + MARGIN, 15 + MARGIN)]
    assert audit("default") == []
