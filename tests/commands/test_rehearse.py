"""ems_groups rehearse: would a part of the log, or dead letters, pass now?"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from streams import Outgoing, Reject, consumer, send_many
from streams.consume import registry
from streams.models import DeadMessage, Delivery
from streams.testing import drain
from tests.commands.conftest import Run
from tests.consuming import rows

pytestmark = [pytest.mark.django_db(databases=["default", "other"])]
pytestmark += [pytest.mark.usefixtures("clean_registry", "letters")]

REHEARSE = ("ems_groups", "rehearse", "bill", "--topic", "orders")


@pytest.fixture
def letters() -> list[int]:
    """Six orders, of which two died; now only the last one would fail."""

    def dies(message: Any) -> None:
        if message.offset >= 4:
            raise Reject("no account")

    def fixed(message: Any) -> None:
        if message.offset == 5:
            raise ValueError("still no account")

    consumer("orders", group="bill")(dies)
    send_many([Outgoing("orders", n) for n in range(6)])
    assert drain().dead == 2
    registry._registered.clear()
    consumer("orders", group="bill", rehearsable=True)(fixed)
    return list(DeadMessage.objects.order_by("pk").values_list("pk", flat=True))


def failing(*words: str) -> tuple[str, str]:
    """Return what the command prints when it ends with exit status 1."""
    out, err = StringIO(), StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command(*REHEARSE, *words, stdout=out, stderr=err)
    assert ended.value.code == 1
    return out.getvalue(), err.getvalue()


def test_messages_that_pass_end_with_exit_status_0(run: Run) -> None:
    before = rows(Delivery, DeadMessage)
    out = run(*REHEARSE, "--from", "0", "--to", "5")
    assert out.endswith("passes: 5, fails: 0, unclear: 0; all is undone.\n")
    assert "orders/0@4" in out
    assert rows(Delivery, DeadMessage) == before


def test_a_message_that_fails_is_shown_with_its_error_and_exit_status_1() -> None:
    out, err = failing("--message", "orders/0@5")
    assert "ValueError: still no account" in out
    assert "databases: default, other. What it does elsewhere happens." in err


def test_dead_letters_are_named_by_ids_by_places_or_as_the_newest(
    parsed: Callable[..., Any], letters: list[int]
) -> None:
    first, second = letters
    for words in (("--dead", str(first)), ("--dead", "orders/0@4")):
        found = parsed(*REHEARSE, *words)
        (one,) = found["messages"]
        assert (one["dead_letter"], one["state"], one["place"]) == (first, "passes", "orders/0@4")
    newest = json.loads(failing("--newest", "1", "--json")[0])
    assert [(one["dead_letter"], one["state"]) for one in newest["messages"]] == [(second, "fails")]
    both = json.loads(failing("--dead", str(first), "orders/0@5", "--json")[0])
    assert (both["passes"], both["fails"], both["unclear"], both["left_out"]) == (1, 1, 0, 0)


def test_a_limit_says_that_there_are_more() -> None:
    out, _err = failing("--from", "0", "--to", "5", "--limit", "2")
    assert out.endswith("No more are rehearsed at once.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "from and to"),
        (("--newest", "1", "--from", "0"), "one of them"),
        (("--newest", "1", "--dead", "1"), "one of them"),
        (("--dead", "99999999"), "no dead letter 99999999 of bill on orders"),
        (("--from", "0", "--to", "5", "--limit", "1001"), "At most 1000"),
        (("--from", "0", "--to", "7"), "not all there yet"),
    ],
    ids=str,
)
def test_what_cannot_be_rehearsed_is_one_line(run: Run, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        run(*REHEARSE, *words)


def test_a_handler_that_does_not_declare_it_is_refused_with_what_to_declare(run: Run) -> None:
    registry._registered.clear()
    consumer("orders", group="bill")(print)
    with pytest.raises(CommandError, match=r"@consumer\(…, rehearsable=True\)"):
        run(*REHEARSE, "--from", "0", "--to", "5")
