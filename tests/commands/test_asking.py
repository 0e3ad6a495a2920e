"""What destroys or repeats asks first; lists are sorted, filtered and watched."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from streams import Outgoing, Reject, consumer, send, send_many
from streams.management.base import CLEAR_SCREEN, counted, line
from streams.models import Cursor, DeadMessage, Message, Partition, Topic
from streams.testing import drain
from tests.commands.conftest import Run
from tests.processes import Spawn, wait_for

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

Parsed = Callable[..., Any]
RESET = ("ems_groups", "reset", "mail", "--to", "1")
DISCARD = ("ems_dead", "discard", "--all")


class Terminal(StringIO):
    """Stands for a terminal, with what is typed there."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def dead(clean_registry: None) -> None:
    """Three orders, of which the first two are dead letters of the group "mail"."""

    @consumer("orders", group="mail", batch=5)
    def handle(messages):
        return {message: Reject("no") for message in messages[:2]}

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()


def typed(monkeypatch: pytest.MonkeyPatch, text: str, *words: str) -> tuple[str, str]:
    """Run a command on a terminal where ``text`` is typed; returns what it prints, and asks."""
    monkeypatch.setattr(sys, "stdin", Terminal(text))
    out, asked = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=asked)
    return out.getvalue(), asked.getvalue()


@pytest.mark.usefixtures("dead")
def test_a_reset_shows_what_it_would_do_and_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ("", "n\n", "sure\n"):
        with pytest.raises(CommandError, match=r"^Nothing was done\.$"):
            typed(monkeypatch, answer, *RESET)
    assert Cursor.objects.get().next_offset == 3
    said, asked = typed(monkeypatch, "y\n", *RESET)
    assert asked == "Reset: mail on orders? [y/N] "
    move = "  orders/0 from 3 to 1, 2 delivered again"
    titles = ("would reset mail on orders:", "done: reset mail on orders:")
    assert said.splitlines() == [titles[0], move, titles[1], move]
    assert Cursor.objects.get().next_offset == 1
    said, asked = typed(monkeypatch, "", *RESET, "--yes")
    assert asked == ""


@pytest.mark.usefixtures("dead")
def test_a_discard_of_all_counts_and_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="Nothing was done"):
        typed(monkeypatch, "n\n", *DISCARD)
    assert DeadMessage.objects.count() == 2
    one = typed(monkeypatch, "yes\n", *DISCARD, "--limit", "1")
    assert one == ("discarded: 1\n", "Delete 1 dead letter for good? [y/N] ")
    rest = DeadMessage.objects.values_list("pk", flat=True)
    assert typed(monkeypatch, "", "ems_dead", "discard", str(rest[0])) == ("discarded: 1\n", "")


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("words", [RESET, DISCARD], ids=" ".join)
def test_where_nobody_can_answer_only_yes_does_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    for more in ((), ("--json",)):
        with pytest.raises(CommandError, match="--yes") as refused:
            run(*words, *more)
        assert refused.value.returncode == 1
    assert (Cursor.objects.get().next_offset, DeadMessage.objects.count()) == (3, 2)
    run(*words, "--dry-run")
    run(*words, "--yes")
    assert (Cursor.objects.get().next_offset, DeadMessage.objects.count()) in ((1, 2), (3, 0))


def group(topic: str, name: str, messages: int) -> None:
    @consumer(topic, group=name, ordered=True)
    def handle(message):
        if message.body == 1:
            raise ValueError("no")

    send_many([Outgoing(topic, n) for n in range(messages)])


def test_groups_are_sorted_and_filtered(run: Run, parsed: Parsed) -> None:
    for name, messages in (("b", 4), ("a", 9), ("c", 1)):
        group(f"topic-{name}", name, messages)
    drain()

    def names(*words: str) -> list[str]:
        return [row["group"] for row in parsed("ems_groups", "list", *words)]

    assert names("--sort", "lag") == names("--sort", "behind") == ["a", "b", "c"]
    assert names("--sort", "group") == ["a", "b", "c"]
    assert names("--sort", "age")[-1] == "c"  # nothing waits: unknown is last
    assert names("--state", "blocked", "--sort", "behind") == ["a", "b"]
    assert names("--state", "idle") == ["c"]
    Topic.objects.create(name="empty")
    topics = parsed("ems_topics", "list", "--sort", "sequenced")
    assert [row["topic"] for row in topics] == ["topic-a", "topic-b", "topic-c", "empty"]
    with pytest.raises(CommandError, match="invalid choice"):
        run("ems_groups", "list", "--sort", "size")


def test_a_watched_list_is_drawn_again_on_a_terminal_and_appended_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Topic.objects.create(name="orders")
    for out in (Terminal(), StringIO()):
        waited: list[float] = []

        def wait(seconds: float, waited: list[float] = waited) -> None:
            waited.append(seconds)
            if len(waited) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", wait)
        call_command("ems_topics", "list", "--watch", "7", stdout=out)
        assert waited == [7, 7, 7]
        assert out.getvalue().count("orders") == 3
        assert out.getvalue().count(" UTC\n") == 3
        assert out.getvalue().count(CLEAR_SCREEN) == (3 if out.isatty() else 0)


@pytest.mark.django_db(transaction=True)
def test_a_watched_list_ends_quietly(spawn: Spawn) -> None:
    Topic.objects.create(name="orders")
    child = spawn.command("ems_topics", "list", "--watch", "1")
    child.expect("orders")
    Topic.objects.create(name="flights")
    wait_for(lambda: "flights" in child.text())
    child.send_signal(signal.SIGINT)
    assert child.wait() == 0
    assert "Traceback" not in child.text()


def test_values_are_read_well() -> None:
    at = datetime(2026, 11, 20, 11, tzinfo=UTC) + timedelta(microseconds=1)
    assert line(at) == "2026-11-20 11:00:00 UTC"
    assert line(1234567) == "1,234,567"
    assert [line(True), line(False), line(None)] == ["yes", "no", "–"]
    assert counted({"deliveries": 1, "messages": 2000}) == "1 delivery, 2,000 messages"


def test_at_once_is_not_1970(run: Run, parsed: Parsed) -> None:
    sent = send("orders", 1)
    assert "1970" not in run("ems_messages", "show", str(sent.message_id))
    assert parsed("ems_messages", "show", str(sent.message_id))["deliver_at"] is None
    later = send("orders", 1, delay=60)
    assert parsed("ems_messages", "show", str(later.message_id))["deliver_at"]


def test_what_names_a_row_has_no_separators(run: Run) -> None:
    send("orders", 1)
    Message.objects.update(id=123456, offset=7777, sequenced_at=datetime.now(UTC), size=4321)
    Partition.objects.update(next_offset=7778)
    row = run("ems_messages", "list", "orders").splitlines()[1].split()
    assert row[:3] == ["123456", "0", "7777"]
    assert "4,321" in row


@pytest.mark.usefixtures("dead")
def test_a_dead_letter_says_its_partition(run: Run, parsed: Parsed) -> None:
    letter = DeadMessage.objects.earliest("pk")
    assert parsed("ems_dead", "list")[0]["partition"] == 0
    assert parsed("ems_dead", "show", str(letter.pk))["partition"] == 0
    assert '"partition": 0' in run("ems_dead", "export")
