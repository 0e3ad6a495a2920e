from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError

from streams import Outgoing, consumer, send, send_many
from streams.log.sequencer import sequence
from streams.models import Message
from streams.testing import advance, drain
from tests.commands.conftest import Run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


def test_the_newest_messages_come_first_those_without_offset_before_all(
    parsed: Callable[..., Any],
) -> None:
    send_many([Outgoing("orders", n, key=f"k{n}") for n in range(5)])
    sequence("default")
    send("orders", "waits")
    rows = parsed("ems_messages", "list", "orders", "--limit", "3")
    assert [row["offset"] for row in rows] == [None, 4, 3]
    assert rows[1]["key"] == "k4"
    assert "body" not in rows[1]


def test_messages_are_found_by_key(parsed: Callable[..., Any]) -> None:
    send_many([Outgoing("orders", n, key="odd" if n % 2 else "even") for n in range(10)])
    sequence("default")
    send("orders", 1, key="odd")
    found = parsed("ems_messages", "list", "orders", "--key", "odd")
    assert [row["offset"] for row in found] == [None, 9, 7, 5, 3, 1]


def test_the_messages_of_a_topic_that_is_none_are_an_error(run: Run) -> None:
    with pytest.raises(CommandError, match="There is no topic 'nowhere'"):
        run("ems_messages", "list", "nowhere")


@pytest.mark.parametrize(
    ("body", "as_json", "as_text"),
    [
        ({"n": [1, "ä"]}, {"n": [1, "ä"]}, '{"n":[1,"ä"]}'),
        ("text\x1b[2J", "text\x1b[2J", "text�[2J"),
        (b"\x00\xff", "AP8=", r"b'\x00\xff'"),
    ],
)
def test_a_message_is_shown_by_id_and_by_place(
    parsed: Callable[..., Any], run: Run, body: Any, as_json: Any, as_text: str
) -> None:
    result = send("orders", body, headers={"a": "b"})
    sequence("default")
    by_id = parsed("ems_messages", "show", str(result.message_id))
    assert by_id == parsed("ems_messages", "show", "orders/0@0")
    assert (by_id["message_id"], by_id["partition"]) == (result.message_id, 0)
    assert (by_id["body"], by_id["headers"]) == (as_json, {"a": "b"})
    assert run("ems_messages", "show", "orders/0@0").splitlines()[-1] == as_text


@pytest.mark.parametrize("name", ["4711", "orders/0@99", "orders/7@0", "moon/0@0"])
def test_a_message_that_is_not_there_is_an_error(run: Run, name: str) -> None:
    send("orders", 1)
    with pytest.raises(CommandError, match=f"There is no message {name}: purged, or never sent"):
        run("ems_messages", "show", name)


@pytest.mark.parametrize("name", ["x", "orders", "orders@1", "orders/x@1", "orders/1@x", "-1"])
def test_a_name_that_is_none_is_an_error(run: Run, name: str) -> None:
    with pytest.raises(CommandError):
        run("ems_messages", "show", name)


def test_the_trace_names_every_delivery_of_every_group(
    parsed: Callable[..., Any], run: Run
) -> None:
    @consumer("orders", group="mail")
    def fail_once(message):
        if message.attempt == 1:
            raise ValueError("not yet")

    consumer("orders", group="audit")(print)
    result = send("orders", 1)
    drain()
    advance(timedelta(minutes=1))
    drain()
    audit, mail = parsed("ems_messages", "trace", str(result.message_id))["groups"]
    assert (audit["group"], audit["state"]) == ("audit", "done")
    assert (mail["group"], mail["state"]) == ("mail", "done")
    assert [(one["kind"], one["outcome"], one["attempt"]) for one in mail["attempts"]] == [
        ("new", "failed", 1),
        ("retry", "done", 2),
    ]
    failed, done = mail["attempts"]
    assert (failed["error"], done["error"]) == ("ValueError: not yet", "")
    assert failed["client"] == "streams.testing"
    assert failed["took_seconds"] >= 0
    assert done["waited_seconds"] > 0
    first, head, *_ = run("ems_messages", "trace", "orders/0@0").splitlines()
    assert first.startswith(f"orders/0@0, sent by {Message.objects.get().producer} at ")
    Message.objects.update(offset=666687)
    for place in ("orders/0@666687,", "orders/0@666,687"):
        assert run("ems_messages", "trace", place).startswith("orders/0@666687, sent by")
    assert head.split() == [
        "group", "state", "attempt", "client", "thread", "claimed_at", "waited", "took", "error",
    ]  # fmt: skip


# -- cancel --


def test_a_delayed_message_is_cancelled(parsed: Callable[..., Any], run: Run) -> None:
    message = send("orders", 1, delay=60).message_id
    said = parsed("ems_messages", "cancel", str(message))
    assert said == {"message_id": message, "cancelled": True}
    with pytest.raises(CommandError, match=f"no message {message}"):
        run("ems_messages", "cancel", str(message))
    visible = send("orders", 1).message_id
    with pytest.raises(CommandError, match="visible already"):
        run("ems_messages", "cancel", str(visible))


# -- ems_send --


def test_a_duplicate_is_said_to_be_one(parsed: Callable[..., Any], run: Run) -> None:
    words = ("ems_send", "orders", "1", "--dedup-key", "a7", "--dedup-window", "60")
    first = parsed(*words)
    assert parsed(*words) == {**first, "duplicate": True}
    assert "a duplicate of message" in run(*words)
    assert parsed("ems_send", "orders", "1", "--partition", "0")["partition"] == 0


def test_a_message_is_sent_with_all_it_may_have(parsed: Callable[..., Any]) -> None:
    said = parsed(
        "ems_send", "orders", '{"n": 1}', "--key", "k", "--tag", "t",
        "--header", "a=b=c", "--header", "d=", "--delay", "1m",
    )  # fmt: skip
    row = Message.objects.get()
    place = {"topic": "orders", "partition": 0}
    assert said == {"message_id": row.pk, **place, "duplicate": False}
    assert (bytes(row.body), row.body_type) == (b'{"n":1}', "json")
    assert (row.key, row.tag, row.headers) == ("k", "t", {"a": "b=c", "d": ""})
    assert row.due_at
    assert timedelta(seconds=59) < row.due_at - row.created_at < timedelta(seconds=61)


def test_text_is_sent_as_it_is_and_standard_input_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("line one\nline two\n"))
    run("ems_send", "orders", "-", "--text")
    row = Message.objects.get()
    assert (bytes(row.body), row.body_type) == (b"line one\nline two\n", "text")
    run("ems_send", "orders")
    assert bytes(Message.objects.latest("id").body) == b"null"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["orders", "{"], "The body is not JSON"),
        (["orders", "1", "--header", "nothing"], "--header takes NAME=VALUE"),
        (["orders", "1", "--delay", "-1"], "is not a duration"),
        ([" orders", "1"], "blanks around it"),
        (["orders", "1", "--key", ""], "empty"),
    ],
)
def test_what_cannot_be_sent_is_one_line_and_nothing_is_written(
    run: Run, words: list[str], said: str
) -> None:
    with pytest.raises(CommandError, match=said):
        run("ems_send", *words)
    assert not Message.objects.exists()
