"""ems_groups on ordered groups that a failed message blocks: list, retries, retry and skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError

from streams import Outgoing, consumer, send_many
from streams.models import Cursor, DeadMessage, Partition, Topic, UtcNow
from streams.observe.audit.walk import audit
from streams.testing import drain
from tests.commands.conftest import Run
from tests.consuming import MINUTE, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry", "blocked")]

RETRY = ("ems_groups", "retry", "mail", "--topic", "orders")
SKIP = ("ems_groups", "skip", "mail", "--topic", "orders", "--partition", "0")


@pytest.fixture
def blocked() -> set[int]:
    """The bodies on which the handler fails: 2 blocks the group, and 7 messages wait behind it."""
    fails = {2}

    @consumer("orders", group="mail", ordered=True, max_retries=3)
    def mail(message: Any) -> None:
        if message.body in fails:
            raise ValueError("no such customer")

    send_many([Outgoing("orders", n, key="k") for n in range(10)])
    drain()
    return fails


def test_the_list_says_what_blocks_a_group(parsed: Callable[..., Any]) -> None:
    (group,) = parsed("ems_groups", "list")
    assert (group["state"], group["blocked_by"], group["attempt"]) == ("blocked", "orders/0@2", 2)
    assert group["error"] == "ValueError: no such customer"
    assert group["next_attempt"]


def test_the_retries_begin_with_what_blocks(parsed: Callable[..., Any], run: Run) -> None:
    (row,) = parsed("ems_groups", "retries", "mail")
    assert (row["id"], row["place"], row["attempt"]) == (None, "orders/0@2", 2)
    assert (row["state"], row["error"]) == ("blocks", "ValueError: no such customer")
    assert row["due_at"]
    assert "ValueError: no such customer" in run("ems_groups", "retries")


@pytest.mark.parametrize("verb", [RETRY, SKIP])
def test_a_dry_run_shows_it_and_changes_nothing(
    run: Run, parsed: Callable[..., Any], verb: tuple[str, ...]
) -> None:
    before = rows(Cursor, DeadMessage)
    shown = run(*verb, "--dry-run")
    assert "orders/0@2: ValueError: no such customer" in shown
    assert "attempt 2/4" in shown
    assert "behind it: 7" in shown
    (one,) = parsed(*verb, "--dry-run")["partitions"]
    assert (one["offset"], one["attempts"], one["behind"]) == (2, 4, 7)
    assert one["outcome"] is None
    assert rows(Cursor, DeadMessage) == before


@pytest.mark.parametrize("verb", [RETRY, SKIP])
def test_without_a_terminal_it_wants_yes(run: Run, verb: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="say --yes"):
        run(*verb)
    assert not DeadMessage.objects.exists()


def test_a_skip_makes_a_dead_letter_and_the_group_goes_on(run: Run, blocked: set[int]) -> None:
    assert "Offset 2 of partition 0: it is a dead letter now" in run(*SKIP, "--yes")
    assert DeadMessage.objects.get().error == "no such customer"
    drain()
    assert Cursor.objects.get().next_offset == 10
    assert audit("default") == []
    with pytest.raises(CommandError, match="No message blocks mail on orders/0"):
        run(*SKIP, "--yes")


def test_a_retry_is_of_every_blocked_partition_or_of_one(
    run: Run, parsed: Callable[..., Any], blocked: set[int]
) -> None:
    log = Partition.objects.create(topic=Topic.objects.get(), number=1, next_offset=5)
    cursor = Cursor.objects.get()
    late = UtcNow(MINUTE)
    Cursor.objects.create(
        group=cursor.group, partition=log, attempt=3, blocked_until=late, blocked_at=late
    )
    run(*RETRY, "--partition", "1", "--yes")
    assert [one.blocked_until is None for one in Cursor.objects.order_by("pk")] == [False, True]
    done = parsed(*RETRY, "--yes")
    assert ["begins" in one["outcome"] for one in done["partitions"]] == [True, True]
    blocked.clear()
    drain()
    assert Cursor.objects.get(pk=cursor.pk).next_offset == 10


def test_what_runs_just_now_is_refused(run: Run) -> None:
    Cursor.objects.update(open_delivery=7, next_offset=3)
    with pytest.raises(CommandError, match="just now"):
        run(*SKIP, "--yes")
    assert not DeadMessage.objects.exists()
