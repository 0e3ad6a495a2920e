"""A body is what was sent for every reader, whether it is stored compressed or not."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Decision, Outgoing, ReceivedMessage, Reject, consumer, send, send_many
from streams.body import decode
from streams.consume.outcome.dead_letter import redrive
from streams.errors import DamagedBody
from streams.log.bodies import stored_messages
from streams.log.sequencer import sequence
from streams.models import DeadMessage, LetterEdit, Message, Partition, PreparedRow
from streams.operate.edited_letter import EditableContent, edit_and_redrive
from streams.rules.body import BODY_TYPES
from streams.rules.stored_body import (
    COMPRESSED_FROM,
    LOGICAL,
    beginning,
    bytes_to_cut,
    from_stored,
    logical_type,
    to_stored,
)
from streams.testing import checkback as check
from streams.testing import drain, sent
from tests.commands.conftest import parsed, run
from tests.large_bodies import RAW, SIZES, VALUES, as_sent
from tests.preparing import answering, held, pass_time

__all__ = ["parsed", "run"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

# Pieces that follow each other: what shrinks well, badly, or not at all.
PIECES = st.lists(
    st.tuples(st.sampled_from([b"a", b'{"n":1},', bytes(range(256))]), st.integers(1, 3000))
    | st.tuples(st.randoms(use_true_random=False), st.integers(1, 9000)),
    min_size=1,
    max_size=4,
)
LARGE = {"items": [{"sku": f"A-{n}", "price": "49.90"} for n in range(400)]}


def made(pieces: list[tuple[Any, int]]) -> bytes:
    return b"".join(
        piece * count if isinstance(piece, bytes) else piece.randbytes(count)
        for piece, count in pieces
    )


@given(PIECES, st.sampled_from(BODY_TYPES), st.integers(0, 5000))
def test_what_is_stored_gives_the_body_and_its_beginning(
    pieces: list[tuple[Any, int]], body_type: str, limit: int
) -> None:
    for raw in (made(pieces), made(pieces)[: COMPRESSED_FROM - 1], made(pieces)[:COMPRESSED_FROM]):
        stored, stored_type = to_stored(raw, body_type)
        assert len(stored) <= len(raw)
        assert (stored_type == body_type) == (stored == raw)
        assert len(raw) >= COMPRESSED_FROM or stored == raw
        assert logical_type(stored_type) == body_type
        assert from_stored(stored, stored_type, len(raw)) == raw
        cut = max(1, limit)
        assert beginning(stored[: bytes_to_cut(cut)], stored_type, cut) == raw[:cut]


def test_a_damaged_body_is_an_error_and_never_grows_beyond_its_size() -> None:
    raw = b"a" * 100_000
    stored, stored_type = to_stored(raw, "text")
    for size in (0, 5, len(raw) - 1):
        with pytest.raises(DamagedBody):
            from_stored(stored, stored_type, size)
    for damaged in (stored[:-1], stored[:-4] + b"0000", b"no zlib"):
        with pytest.raises(DamagedBody):
            from_stored(damaged, stored_type, len(raw))


def test_every_reader_of_messages_sees_what_was_sent(parsed: Any) -> None:
    handled: list[Any] = []
    consumer("orders", group="mail")(handled.append)
    send_many([Outgoing("orders", value) for value in VALUES])
    waiting = sent("orders")
    assert [message.body for message in waiting] == VALUES
    drain()
    rows = Message.objects.order_by("pk")
    types = list(rows.values_list("body_type", flat=True))
    # Of each five, the random bytes do not shrink; below the limit nothing is tried.
    assert [one in LOGICAL for one in types] == [
        size >= COMPRESSED_FROM and n != 2 for size in SIZES for n in range(5)
    ]
    assert [(message.raw_body, message.body_type) for message in handled] == RAW
    assert [message.body for message in handled] == VALUES
    assert [message.size for message in handled] == [len(raw) for raw, _type in RAW]
    for found in (list(rows), list(rows.defer("body")), list(rows.only("size"))):
        assert [(bytes(row.body), row.body_type) for row in found] == RAW
    for row in rows:
        row.refresh_from_db(fields=["body"])
        assert decode(bytes(row.body), row.body_type) == VALUES[row.offset or 0]
    partition = Partition.objects.get()
    read = stored_messages(partition.pk, 0, len(VALUES), "default")
    assert [(row.raw_body, row.body_type) for row in read] == RAW
    for row in rows:
        shown = parsed("ems_messages", "show", f"orders/0@{row.offset}")
        value = VALUES[row.offset or 0]
        expected = b64encode(value).decode() if isinstance(value, bytes) else value
        assert (shown["body"], shown["body_type"], shown["size"]) == (
            expected,
            row.body_type,
            row.size,
        )


def test_a_dead_letter_a_redrive_and_an_edit_have_the_body_that_was_sent(parsed: Any) -> None:
    handled: list[Any] = []
    rejects = True

    @consumer("orders", group="mail", max_retries=0)
    def mail(message: Any) -> None:
        if rejects:
            raise Reject("no")
        handled.append(message.body)

    send_many([Outgoing("orders", value) for value in VALUES])
    drain()
    letters = list(DeadMessage.objects.order_by("offset"))
    assert [(bytes(letter.body), letter.body_type) for letter in letters] == RAW
    for letter, value in zip(letters, VALUES, strict=True):
        shown = parsed("ems_dead", "show", str(letter.pk))["body"]
        assert shown == (b64encode(value).decode() if isinstance(value, bytes) else value)
    rejects = False
    for letter in letters:
        assert redrive(letter)
    drain()
    assert handled == VALUES


@pytest.mark.parametrize("value", as_sent(4 * COMPRESSED_FROM) + as_sent(100))
def test_an_edited_letter_keeps_what_it_was_and_is_handled_as_it_is_now(value: Any) -> None:
    handled: list[Any] = []

    @consumer("orders", group="mail", max_retries=0)
    def mail(message: Any) -> None:
        if message.body != LARGE:
            raise Reject("no")
        handled.append(message.body)

    send("orders", value)
    drain()
    letter = DeadMessage.objects.get()
    before = EditableContent.of(letter)
    after = replace(before, body=json.dumps(LARGE), body_type="json")
    assert edit_and_redrive(letter, after, "ada")
    drain()
    assert handled == [LARGE]
    edit = LetterEdit.objects.get()
    assert EditableContent.of(edit) == before
    now = DeadMessage.objects.get()
    assert now.size == len(bytes(now.body)) == len(json.dumps(LARGE, separators=(",", ":")))
    stored = DeadMessage.objects.values_list("body_type", flat=True)
    assert [*stored] == ["zjson"]
    # What was compressed is so in the copy as well.
    (kept,) = LetterEdit.objects.values_list("body_type", flat=True)
    (log,) = Message.objects.values_list("body_type", flat=True)
    assert kept == log


@pytest.mark.parametrize("value", as_sent(4 * COMPRESSED_FROM))
def test_a_prepared_message_is_asked_about_and_sent_as_it_was(value: Any) -> None:
    handled: list[Any] = []
    consumer("orders", group="mail")(handled.append)
    asked = answering(Decision.COMMIT)
    held(body=value)
    row = PreparedRow.objects.get()
    assert decode(bytes(row.body), row.body_type) == value
    held(body=value)  # the same content: no conflict
    pass_time(2)
    check()
    assert [message.body for message in asked] == [value]
    drain()
    assert [message.body for message in handled] == [value]
    row.refresh_from_db()
    assert (bytes(row.body), row.body_type in BODY_TYPES) == (b"", True)


def test_a_message_of_one_megabyte_that_shrinks_to_little_is_claimed_by_its_own_size() -> None:
    send_many([Outgoing("orders", "a" * 1_000_000)] * 3)
    sequence("default")
    partition = Partition.objects.get()
    read = stored_messages(partition.pk, 0, 3, "default", at_most=500_000)
    assert [row.stored_body for row in read] == [None] * 3
    assert [row.weight for row in read] == [1_000_000] * 3


def test_a_message_with_a_damaged_body_fails_alone() -> None:
    """It is damaged where the handler reads it, and nothing else of the claim may fail by it."""
    handled: list[int] = []

    @consumer("orders", group="mail", max_retries=0)
    def handle(message: ReceivedMessage) -> None:
        assert message.body == LARGE
        handled.append(message.offset)

    first = send("orders", LARGE)
    send("orders", LARGE)
    Message.objects.filter(pk=first.message_id).update(body=b"no zlib")
    outcome = drain()
    assert (outcome.done, outcome.dead) == (1, 1)
    assert handled == [1]
    error = DeadMessage.objects.values_list("error", flat=True).get()
    assert error.startswith("The stored body is damaged")


def test_a_damaged_body_is_the_error_of_who_asks_for_it(parsed: Any, run: Any) -> None:
    """Who reads several rows gets them all, and commands show what there is."""
    first, second = (send("orders", LARGE).message_id for _ in range(2))
    sequence("default")
    Message.objects.filter(pk=first).update(body=b"no zlib")
    damaged, whole = Message.objects.order_by("pk")
    assert decode(bytes(whole.body), whole.body_type) == LARGE
    for row in (damaged, Message.objects.defer("body").get(pk=first)):
        for _twice in range(2):
            with pytest.raises(DamagedBody):
                _ = row.body
        assert row.readable_body() is None
        assert (row.body_type, row.size) == ("json", whole.size)
    shown = parsed("ems_messages", "show", f"orders/0@{damaged.offset}")
    assert (shown["damaged"], shown["body"]) == (True, None)
    assert "The stored body is damaged." in run("ems_messages", "show", str(first))
    assert parsed("ems_messages", "show", str(second))["damaged"] is False
