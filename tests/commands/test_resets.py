from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from streams import Outgoing, consumer, send_many
from streams.log.sequencer import sequence
from streams.models import Consumer, ConsumerGroup, Cursor, Delivery, Message, RetryMessage, UtcNow
from streams.models.consumer import LEASE
from streams.testing import drain
from tests.commands.conftest import Run
from tests.consuming import Process, rows

pytestmark = pytest.mark.django_db

Parsed = Callable[..., Any]

RESET = ("ems_groups", "reset", "mail", "--yes")
UNDO = ("ems_groups", "undo", "mail", "--yes")
REPLAY = ("ems_groups", "replay", "mail")
REPLAYS = ("ems_groups", "replays")
CANCEL = ("ems_groups", "cancel-replay", "mail")


@pytest.fixture(autouse=True)
def handled(clean_registry: None) -> None:
    """Ten orders, all mailed but 7, which waits to be retried."""

    @consumer("orders", group="mail")
    def mail(message):
        if message.offset == 7:
            raise ValueError("no")

    send_many([Outgoing("orders", n) for n in range(10)])
    drain()


def live() -> Consumer:
    group = ConsumerGroup.objects.get()
    return Consumer.objects.create(client_id="me", group=group, lease_until=UtcNow(LEASE))


def test_a_dry_run_says_what_a_reset_would_do_and_changes_nothing(run: Run) -> None:
    before = rows(Cursor, Delivery, RetryMessage)
    said = "orders/0 from 10 to 4, 6 delivered again, retries that begin anew: 1"
    assert run(*RESET, "--to", "4", "--dry-run").splitlines() == [
        "would reset mail on orders:",
        f"  {said}",
    ]
    assert rows(Cursor, Delivery, RetryMessage) == before
    assert run(*RESET, "--to", "4").splitlines() == [
        "done: reset mail on orders:",
        f"  {said}",
    ]
    assert Cursor.objects.get().next_offset == 4


def test_a_reset_in_json(parsed: Parsed) -> None:
    here = {"group": "mail", "topic": "orders", "consumers": 0}
    nothing = {"again": 0, "skipped": 0, "fenced": 0, "retries": 0, "given_back": 0, "restored": 0}
    back = {"partition": 0, "position": 10, "target": 4, **nothing, "again": 6, "retries": 1}
    assert parsed(*RESET, "--to", "-6", "--dry-run") == {
        **here,
        "done": False,
        "moves": [back],
    }
    assert parsed(*RESET, "--to", "-6") == {**here, "done": True, "moves": [back]}
    undone = {"partition": 0, "position": 4, "target": 10, **nothing, "skipped": 6, "restored": 1}
    assert parsed(*UNDO)["moves"] == [undone]


@pytest.mark.parametrize(
    ("to", "target"), [("earliest", 0), ("latest", 10), ("3", 3), ("-3", 7), ("orders/0@0,003", 3)]
)
def test_a_target_is_said_in_many_ways(parsed: Parsed, to: str, target: int) -> None:
    (move,) = parsed(*RESET, "--to", to)["moves"]
    assert move["target"] == target == Cursor.objects.get().next_offset


def test_a_target_is_said_as_a_time(parsed: Parsed) -> None:
    hour = timedelta(hours=1)
    Message.objects.filter(offset__lt=6).update(sequenced_at=UtcNow(-2 * hour))
    at = (timezone.now() - hour).isoformat()
    assert parsed(*RESET, "--to", at)["moves"][0]["target"] == 6


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--to", "11"), "orders/0 ends before offset 10"),
        (("--to", "soon"), "is not a place in a log"),
        (("--to", "2026-11-20T10:00"), "say the time zone"),
        (("--to", "3", "--partition", "1"), "mail on orders has no such partition"),
        (("--to", "3", "--topic", "flights"), "There is no group mail on flights"),
    ],
)
def test_what_cannot_be_done_is_said_on_one_line(
    run: Run, words: tuple[str, ...], text: str
) -> None:
    before = rows(Cursor, Delivery, RetryMessage)
    for more in ((), ("--dry-run",)):
        with pytest.raises(CommandError, match=text):
            run(*RESET, *words, *more)
    assert rows(Cursor, Delivery, RetryMessage) == before


def test_a_reset_must_be_told_where_to(run: Run) -> None:
    with pytest.raises(CommandError):
        run(*RESET)


def test_what_was_never_reset_is_not_undone(run: Run) -> None:
    with pytest.raises(CommandError, match="mail on orders has not been reset"):
        run(*UNDO)


def test_a_group_with_live_consumers_needs_force(run: Run) -> None:
    live()
    assert run(*RESET, "--to", "3", "--dry-run").splitlines()[-1] == (
        "The group has 1 live consumer: what it holds past the target is lost to it."
        " To do it all the same, say --force."
    )
    with pytest.raises(CommandError, match="has 1 live consumer"):
        run(*RESET, "--to", "3")
    run(*RESET, "--to", "3", "--force")
    assert Cursor.objects.get().next_offset == 3


def test_a_group_on_several_topics_is_named_with_one(run: Run) -> None:
    consumer("flights", group="mail")(print)
    send_many([Outgoing("flights", 1)])
    drain()
    for words in ((*RESET, "--to", "0"), (*REPLAY, "--from", "0", "--to", "1")):
        with pytest.raises(CommandError, match=r"--topic \(flights, orders\)"):
            run(*words)
    run(*RESET, "--to", "0", "--topic", "flights")
    positions = Cursor.objects.values_list("group__topic__name", "next_offset")
    assert dict(positions) == {"orders": 10, "flights": 0}


def test_a_part_of_the_log_is_replayed_and_shown(run: Run, parsed: Parsed) -> None:
    words = (*REPLAY, "--from", "2", "--to", "5")
    text = "replay mail on orders:\n  replay 1: 3 messages: orders/0@2-4\n"
    assert run(*words, "--dry-run") == f"would {text}"
    assert parsed(*REPLAYS) == []
    assert run(*words, "--yes") == f"done: {text}"
    Process("mail").claim(2)
    assert parsed(*REPLAYS, "mail", "--topic", "orders") == [
        {
            "group": "mail",
            "topic": "orders",
            "replay": 1,
            "partition": 0,
            "first": 2,
            "end": 5,
            "given_out": 2,
            "open": 2,
            "state": "running",
        }
    ]
    assert parsed(*words, "--yes") == {
        "group": "mail",
        "topic": "orders",
        "done": True,
        "number": 2,
        "messages": 3,
        "parts": [{"partition": 0, "first": 2, "end": 5}],
    }


def test_one_message_is_replayed(run: Run) -> None:
    message = Message.objects.get(offset=6)
    said = run(*REPLAY, "--message", str(message.pk), "--yes")
    assert said.endswith("replay 1: 1 message: orders/0@6\n")
    assert run(*REPLAY, "--message", "orders/0@6", "--dry-run").endswith("message: orders/0@6\n")
    said = run(*REPLAY, "--from", "orders/0@6", "--to", "orders/0@8", "--dry-run")
    assert said.endswith("messages: orders/0@6-7\n")
    with pytest.raises(CommandError, match="not in the log that is meant"):
        run(*REPLAY, "--from", "orders/1@6", "--to", "8")


def test_a_replay_is_cancelled(run: Run, parsed: Parsed) -> None:
    run(*REPLAY, "--from", "2", "--to", "5", "--yes")
    said = run(*CANCEL, "--yes")
    assert said.endswith("replay 1: 3 messages are not given out\n")
    assert parsed(*REPLAYS)[0]["state"] == "cancelled"
    with pytest.raises(CommandError, match="mail on orders has no replay 1 that is running"):
        run(*CANCEL, "--number", "1", "--yes")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "Give from and to, or one message"),
        (("--from", "2"), "Give from and to, or one message"),
        (("--from", "2", "--to", "3", "--message", "1"), "Give from and to, or one message"),
        (("--from", "earliest", "--to", "3"), "not 'earliest'"),
        (("--from", "2", "--to", "+3"), "not '\\+3'"),
        (("--from", "2", "--to", "11"), "is not all there yet"),
        (("--from", "5", "--to", "5"), "no message between the two targets"),
        (("--message", "999999"), "There is no message 999999 on orders"),
    ],
)
def test_what_cannot_be_replayed_is_said_on_one_line(
    run: Run, words: tuple[str, ...], text: str
) -> None:
    before = rows(Cursor)
    with pytest.raises(CommandError, match=text):
        run(*REPLAY, *words)
    assert rows(Cursor) == before
    assert sequence("default").sequenced == 0
