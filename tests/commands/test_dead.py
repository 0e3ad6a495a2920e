from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import wait
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from streams import Outgoing, Reject, consumer, send, send_many
from streams.consume.outcome.dead_letter import redrive
from streams.management.commands import ems_dead
from streams.models import DeadMessage, Delivery, LetterEdit, Message, Redrive, RetryMessage
from streams.observe.audit.walk import audit
from streams.testing import advance, drain
from tests.commands.conftest import Run
from tests.processes import Spawn
from tests.sessions import Threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


class Shop:
    """A group that rejects what it is told to."""

    def __init__(self) -> None:
        self.rejects = True
        self.seen: list[tuple[Any, int]] = []

    def handle(self, message):
        self.seen.append((message.body, message.attempt))
        if self.rejects:
            raise Reject(f"no {message.body}")


@pytest.fixture
def shop(clean_registry: None) -> Shop:
    """Three dead letters: of "orders" 0 and 1, of "flights" "f"."""
    shop = Shop()
    consumer("orders", group="mail", max_retries=0)(shop.handle)

    @consumer("flights", group="radar")
    def radar(message):
        if shop.rejects:
            raise ZeroDivisionError

    send_many([Outgoing("orders", n, key=f"k{n}") for n in range(2)])
    send("flights", "f")
    drain()
    for _ in range(20):
        advance(timedelta(days=1))
        drain()
    shop.seen.clear()
    shop.rejects = False
    return shop


def letters(**filters: Any) -> list[DeadMessage]:
    return list(DeadMessage.objects.filter(**filters).order_by("id"))


def test_letters_are_listed_newest_first_and_filtered(
    shop: Shop, parsed: Callable[..., Any], run: Run
) -> None:
    rows = parsed("ems_dead", "list")
    assert [(row["topic"], row["offset"]) for row in rows] == [
        ("flights", 0),
        ("orders", 1),
        ("orders", 0),
    ]
    assert (rows[1]["error_class"], rows[1]["error"]) == ("streams.errors.Reject", "no 1")
    assert (rows[0]["attempts"], rows[1]["attempts"]) == (17, 1)
    assert len(parsed("ems_dead", "list", "--limit", "1")) == 1
    for option, value in (
        ("--topic", "flights"),
        ("--group", "radar"),
        ("--error-class", "ZeroDivisionError"),
    ):
        assert [row["topic"] for row in parsed("ems_dead", "list", option, value)] == ["flights"]
    with pytest.raises(CommandError, match="There is no group nobody"):
        run("ems_dead", "list", "--group", "nobody")


def test_redriven_letters_are_history_and_not_listed(
    shop: Shop, parsed: Callable[..., Any]
) -> None:
    redrive(letters()[0])
    assert [row["topic"] for row in parsed("ems_dead", "list")] == ["flights", "orders"]


def test_a_letter_is_shown_with_body_and_traceback(
    shop: Shop, parsed: Callable[..., Any], run: Run
) -> None:
    letter = letters()[1]
    shown = parsed("ems_dead", "show", str(letter.pk))
    assert (shown["id"], shown["topic"], shown["group"]) == (letter.pk, "orders", "mail")
    assert (shown["body"], shown["key"], shown["error"]) == (1, "k1", "no 1")
    text = run("ems_dead", "show", str(letter.pk))
    assert "\n\n1\n" in text
    assert text.rstrip().endswith("streams.errors.Reject: no 1")
    with pytest.raises(CommandError, match="There is no dead letter 4711"):
        run("ems_dead", "show", "4711")


def test_export_writes_one_json_object_a_line(
    shop: Shop, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ems_dead, "PAGE", 1)
    redrive(letters()[0])
    rows = [json.loads(text) for text in run("ems_dead", "export").splitlines()]
    assert sorted(row["body"] for row in rows if row["topic"] == "orders") == [1]
    assert len(run("ems_dead", "export", "--redriven").splitlines()) == 3
    assert len(run("ems_dead", "export", "--limit", "1").splitlines()) == 1


@pytest.mark.parametrize("verb", ["redrive", "discard"])
def test_nothing_is_chosen_by_default(shop: Shop, run: Run, verb: str) -> None:
    for words in ([], ["--group", "mail"], ["1", "--all"]):
        with pytest.raises(CommandError, match="Give ids, or --all"):
            run("ems_dead", verb, *words)
    assert len(letters(redriven_at=None)) == 3


@pytest.mark.parametrize(("verb", "done"), [("redrive", "redriven"), ("discard", "discarded")])
def test_a_dry_run_counts_and_changes_nothing(
    shop: Shop, parsed: Callable[..., Any], verb: str, done: str
) -> None:
    for words, count in (
        (["--all"], 3),
        (["--all", "--topic", "orders"], 2),
        (["--all", "--limit", "1"], 1),
        ([str(letters()[0].pk)], 1),
    ):
        said = parsed("ems_dead", verb, *words, "--dry-run")
        assert said == {"dry_run": True, done: count, "left_out": 0}
    assert len(letters(redriven_at=None)) == 3
    assert not RetryMessage.objects.exists()


def test_what_is_redriven_is_delivered_again_from_the_first_attempt(
    shop: Shop, parsed: Callable[..., Any]
) -> None:
    said = parsed("ems_dead", "redrive", "--all", "--group", "mail")
    assert said == {"dry_run": False, "redriven": 2, "left_out": 0}
    drain()
    assert sorted(shop.seen) == [(0, 1), (1, 1)]
    assert not RetryMessage.objects.exists()
    assert len(letters(redriven_at__isnull=False)) == 2  # kept, as history
    assert audit("default") == []


def test_a_message_that_was_purged_is_redriven_with_the_letters_body(shop: Shop, run: Run) -> None:
    Message.objects.all().delete()
    run("ems_dead", "redrive", "--all", "--topic", "orders")
    drain()
    assert sorted(shop.seen) == [(0, 1), (1, 1)]


def test_what_dies_again_is_a_letter_again(shop: Shop, run: Run) -> None:
    first, second, _ = letters()
    Message.objects.filter(offset=second.offset, partition=second.partition_id).delete()
    shop.rejects = True
    run("ems_dead", "redrive", "--all", "--group", "mail")
    drain()
    waiting = letters(redriven_at=None, group__name="mail")
    # The message that is gone lives in its letter, which is opened again; of the other there is
    # a new one.
    assert [letter.offset for letter in waiting] == [1, 0]
    assert waiting[0].pk == second.pk
    assert waiting[1].pk not in (first.pk, second.pk)
    shop.rejects = False
    run("ems_dead", "redrive", "--all", "--group", "mail")
    shop.seen.clear()
    drain()
    assert sorted(shop.seen) == [(0, 1), (1, 1)]


def test_redriving_twice_does_it_once(shop: Shop, parsed: Callable[..., Any]) -> None:
    ids = [str(letter.pk) for letter in letters(group__name="mail")]
    assert parsed("ems_dead", "redrive", *ids)["redriven"] == 2
    again = parsed("ems_dead", "redrive", *ids)
    assert (again["redriven"], again["left_out"]) == (0, 2)
    drain()
    assert len(shop.seen) == 2
    assert parsed("ems_dead", "redrive", "4711")["left_out"] == 1


def test_work_is_bounded_and_goes_on_where_it_stopped(
    shop: Shop, parsed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ems_dead, "PAGE", 1)
    for _ in range(3):
        assert parsed("ems_dead", "discard", "--all", "--limit", "1", "--yes")["discarded"] == 1
    assert parsed("ems_dead", "discard", "--all", "--limit", "1", "--yes")["discarded"] == 0
    assert letters() == []
    assert audit("default") == []


def test_what_was_redriven_is_not_discarded(shop: Shop, parsed: Callable[..., Any]) -> None:
    first, second, third = letters()
    redrive(first)
    said = parsed("ems_dead", "discard", str(first.pk), str(second.pk), str(third.pk))
    assert (said["discarded"], said["left_out"]) == (2, 1)
    drain()
    assert shop.seen == [(0, 1)]


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("verb", "done"), [("redrive", "redriven"), ("discard", "discarded")])
def test_two_operators_at_once_do_each_letter_once(
    shop: Shop, parsed: Callable[..., Any], in_thread: Threads, verb: str, done: str
) -> None:
    shop.rejects = True
    send_many([Outgoing("orders", n) for n in range(40)])
    drain()
    words = ("--all", "--group", "mail", *(("--yes",) if verb == "discard" else ()))
    both = [in_thread(parsed, "ems_dead", verb, *words) for _ in range(2)]
    wait(both, 60)
    said = [future.result() for future in both]
    assert sum(row[done] for row in said) == 42
    shop.rejects = False
    shop.seen.clear()
    drain()
    assert len(shop.seen) == (42 if verb == "redrive" else 0)
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_one_redrives_and_another_discards_the_same_letters(
    shop: Shop, parsed: Callable[..., Any], in_thread: Threads
) -> None:
    shop.rejects = True
    send_many([Outgoing("orders", n) for n in range(40)])
    drain()
    redriven = in_thread(parsed, "ems_dead", "redrive", "--all", "--group", "mail")
    discarded = in_thread(parsed, "ems_dead", "discard", "--all", "--yes", "--group", "mail")
    count = redriven.result(60)["redriven"]
    assert count + discarded.result(60)["discarded"] == 42
    shop.rejects = False
    shop.seen.clear()
    drain()
    assert len(shop.seen) == count
    assert audit("default") == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_as_a_process_it_redrives(shop: Shop, spawn: Spawn) -> None:
    child = spawn.command("ems_dead", "redrive", "--all", "--topic", "orders")
    assert child.succeed().strip() == "redriven: 2"  # no progress where nobody looks on
    drain()
    assert sorted(shop.seen) == [(0, 1), (1, 1)]
    assert Delivery.objects.filter(kind="retry", first_offset=0).exists()


def test_an_edit_shows_the_difference_and_gives_the_message_to_the_group(
    shop: Shop, run: Run, tmp_path: Any
) -> None:
    letter = letters(offset=1)[0]
    file = tmp_path / "body.json"
    file.write_text('{"n": 7}')
    said = run("ems_dead", "edit", letter.pk, "--body", f"@{file}", "--tag", "x", "--yes")
    assert '+  "n": 7' in said
    assert f"edited: dead letter {letter.pk}" in said
    drain()
    assert shop.seen == [({"n": 7}, 1)]
    kept = LetterEdit.objects.get()
    assert (bytes(kept.body), kept.tag, kept.letter_id) == (b"1", "", letter.pk)
    assert kept.who.endswith("(ems_dead)")
    assert audit("default") == []


def test_an_edit_asks_and_a_dry_run_changes_nothing(
    shop: Shop, run: Run, parsed: Callable[..., Any]
) -> None:
    letter = letters(offset=1)[0]
    with pytest.raises(CommandError, match="say --yes"):
        run("ems_dead", "edit", letter.pk, "--body", "7")
    told = parsed("ems_dead", "edit", letter.pk, "--body", "7", "--dry-run")
    assert "+7" in told["difference"]
    assert not LetterEdit.objects.exists()
    assert not RetryMessage.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "Say what to change"),
        (("--body", "1"), "Nothing is changed"),
        (("--body", "{,"), "body: line 1, column 2"),
        (("--body", "@/no/such/file"), "cannot be read"),
        (("--headers", "[]"), "strings to strings"),
    ],
)
def test_an_edit_that_cannot_be_is_refused(
    shop: Shop, run: Run, arguments: tuple[str, ...], told: str
) -> None:
    with pytest.raises(CommandError, match=told):
        run("ems_dead", "edit", letters(offset=1)[0].pk, *arguments, "--yes")
    assert not LetterEdit.objects.exists()


def test_an_edit_of_what_was_redriven_is_refused(shop: Shop, run: Run) -> None:
    letter = letters(offset=1)[0]
    redrive(letter)
    with pytest.raises(CommandError, match="redriven, edited or deleted meanwhile"):
        run("ems_dead", "edit", letter.pk, "--body", "7", "--yes")
    assert not LetterEdit.objects.exists()


def test_a_redrive_at_a_rate_is_begun_listed_stopped_and_gone_on_with(
    shop: Shop, run: Run, parsed: Callable[..., Any]
) -> None:
    begun = parsed("ems_dead", "redrive", "--all", "--group", "mail", "--rate", "0.5")
    assert DeadMessage.objects.waiting().count() == 3
    (row,) = parsed("ems_redrives", "list")
    assert (row["redrive"], row["rate"], row["state"]) == (begun["redrive"], 0.5, "running")
    turned = {"redrive": row["redrive"], "state": "stopped", "changed": True}
    assert parsed("ems_redrives", "stop", row["redrive"]) == [turned]
    assert parsed("ems_redrives", "stop", row["redrive"]) == [{**turned, "changed": False}]
    assert parsed("ems_redrives", "list")[0]["state"] == "stopped"
    with pytest.raises(CommandError, match="There is no redrive 999"):
        run("ems_redrives", "stop", 999)
    with pytest.raises(CommandError, match="A rate is from"):
        run("ems_dead", "redrive", "--all", "--rate", "0")
    run("ems_dead", "redrive", letters()[0].pk, "--rate", "9", "--dry-run")
    assert Redrive.objects.count() == 1


def test_a_rate_takes_a_limit_the_oldest_first(
    shop: Shop, run: Run, parsed: Callable[..., Any]
) -> None:
    first, second, third = letters()
    parsed("ems_dead", "redrive", "--all", "--limit", "2", "--rate", "9")
    begun = Redrive.objects.get()
    assert (begun.upto, begun.total) == (second.pk, 2)
    assert begun.about.endswith("the oldest 2")
    begun.delete()
    words = ("--all", "--rate", "9", "--error-class", first.error_class, "--limit")
    parsed("ems_dead", "redrive", *words, "1")
    begun = Redrive.objects.get()
    assert (begun.upto, begun.total) == (first.pk, 1)
    begun.delete()
    parsed("ems_dead", "redrive", *words, "1000")  # there are two of them
    assert Redrive.objects.get().total == 2
    Redrive.objects.all().delete()
    parsed("ems_dead", "redrive", third.pk, first.pk, "--limit", "1", "--rate", "9")
    assert Redrive.objects.get().ids == [first.pk]
    Redrive.objects.all().delete()
    with pytest.raises(CommandError, match="None of these dead letters waits"):
        run("ems_dead", "redrive", "--all", "--error-class", "Other", "--limit", "1", "--rate", "9")
    assert not Redrive.objects.exists()


def test_letters_are_named_by_the_place_that_a_trace_prints(
    shop: Shop, run: Run, parsed: Callable[..., Any]
) -> None:
    first, second, radar = letters()
    assert parsed("ems_dead", "show", "orders/0@1")["id"] == second.pk
    assert parsed("ems_dead", "edit", "orders@1", "--body", "7", "--dry-run")["id"] == second.pk
    said = parsed("ems_dead", "redrive", "orders/0@0-1", "--dry-run")
    assert (said["redriven"], said["left_out"]) == (2, 0)
    parsed("ems_dead", "redrive", "orders/0@1", radar.pk, "--rate", "9")
    assert Redrive.objects.get().ids == sorted([second.pk, radar.pk])
    with pytest.raises(CommandError, match="no dead letter orders/0@17"):
        run("ems_dead", "show", "orders/0@17")
    with pytest.raises(CommandError, match="such as orders/2@666687"):
        run("ems_dead", "show", "orders")
    # A redriven one is history.
    redrive(second)
    assert parsed("ems_dead", "show", "orders/0@1")["id"] == second.pk
    again = DeadMessage.objects.get(pk=first.pk)
    again.pk, again.offset = None, 1
    again.save(force_insert=True)
    assert parsed("ems_dead", "show", "orders/0@1")["id"] == again.pk
    moved = {"partition": first.partition_id, "offset": 1, "group": first.group_id}
    DeadMessage.objects.filter(pk=radar.pk).update(**moved)
    with pytest.raises(CommandError, match="several dead letters at orders/0@1: name one by"):
        run("ems_dead", "show", "orders/0@1")
