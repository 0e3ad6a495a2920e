from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from streams import Outgoing, consumer, send_many
from streams.log import topics
from streams.models import ConsumerGroup, Cursor, Delivery, Message, Step, Topic, UtcNow
from streams.models.step import PURGE
from streams.observe.diagnoses import silence
from streams.operate import topic_deletion
from streams.operate.group_deletion import delete_group
from streams.testing import drain
from tests.commands.conftest import Run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def log(db: None, clean_registry: None) -> None:
    """Ten messages of which two are to be kept; "slow" has read four."""
    topics.forget()
    for group in ("mail", "slow"):
        consumer("orders", group=group)(lambda message: None)
    send_many([Outgoing("orders", n) for n in range(10)])
    drain()
    Cursor.objects.filter(group__name="slow").update(next_offset=4)
    Topic.objects.update(retention_count=2)


def test_only_a_purge_of_all_is_one_as_the_doctor_sees_it(run: Run) -> None:
    Step.objects.update_or_create(name=PURGE, defaults={"last_run_at": UtcNow(-timedelta(days=5))})
    for words in (["--dry-run"], ["--topic", "orders"]):
        run("ems_purge", *words)
        assert silence(PURGE, "default") > timedelta(days=4)  # type: ignore[operator]
    run("ems_purge")
    assert silence(PURGE, "default") < timedelta(minutes=1)  # type: ignore[operator]


def test_a_purge_says_what_it_has_deleted_and_who_holds_it_back(run: Run) -> None:
    assert run("ems_purge", "--dry-run").splitlines() == [
        "orders/0: would delete 4 messages, up to offset 4",
        "  held back: slow has not read from 4 on",
    ]
    assert Message.objects.count() == 10
    assert run("ems_purge").splitlines() == [
        "orders/0: 4 messages deleted; it begins at 4",
        "  held back: slow has not read from 4 on",
    ]
    assert Message.objects.count() == 6


def test_a_purge_with_nothing_to_do_says_so(run: Run) -> None:
    Topic.objects.update(retention_count=None)
    assert run("ems_purge") == "Nothing to purge.\n"


def test_force_says_beforehand_whom_it_skips_and_afterwards_what(run: Run) -> None:
    assert run("ems_purge", "--topic", "orders", "--force", "--dry-run").splitlines() == [
        "orders/0: would delete 8 messages, up to offset 8",
        "  would skip: slow has not read from 4 on",
    ]
    assert run("ems_purge", "--force").splitlines() == [
        "orders/0: 8 messages deleted; it begins at 8",
        "  forced: 4 unread, 0 deliveries ended, 0 retries given up",
    ]
    assert Message.objects.count() == 2


def test_an_abandoned_group_is_named(run: Run, parsed: Callable[..., Any]) -> None:
    Delivery.objects.filter(group__name="slow").update(claimed_at=UtcNow(-timedelta(days=9)))
    said = run("ems_purge", "--dry-run").splitlines()
    assert said[2] == (
        "Abandoned? slow on orders has had no consumer for 9 days, and keeps 4 messages of"
        " orders/0 from being purged."
    )
    assert "ems_groups delete" in said[3]
    assert len(parsed("ems_purge", "--dry-run")["abandoned"]) == 1


def test_json_has_every_partition(parsed: Callable[..., Any]) -> None:
    assert parsed("ems_purge", "--topic", "orders") == {
        "dry_run": False,
        "partitions": [
            {
                "partition": "orders/0",
                "wanted": 8,
                "first_offset": 4,
                "messages": 4,
                "deleted": 4,
                "skipped": {"messages": 0, "deliveries": 0, "retries": 0},
                "held_by": [{"group": "slow", "what": "cursor", "offset": 4}],
                "past": [],
            }
        ],
        "expired": {},
        "abandoned": [],
    }


def test_what_else_has_outlived_its_time_goes_with_a_purge_of_all_topics(run: Run) -> None:
    delete_group(ConsumerGroup.objects.get(name="slow"))
    old = UtcNow(-timedelta(days=40))
    Delivery.objects.update(claimed_at=old, finished_at=old)
    assert "deliveries" not in run("ems_purge", "--topic", "orders")
    assert "1 delivery deleted" in run("ems_purge")
    assert not Delivery.objects.exists()


def test_a_topic_that_is_not_there_is_an_error(run: Run) -> None:
    for words in (("ems_purge", "--topic"), ("ems_topics", "retire"), ("ems_topics", "delete")):
        with pytest.raises(CommandError, match="no topic mails"):
            run(*words, "mails")


def test_topics_are_created_grown_and_retired(run: Run, parsed: Callable[..., Any]) -> None:
    assert run("ems_topics", "create", "mails", "--partitions", "2") == "created: mails\n"
    with pytest.raises(CommandError, match="already"):
        run("ems_topics", "create", "mails")
    assert parsed("ems_topics", "grow", "mails", "--partitions", "5", "--yes")["new"] == 3
    with pytest.raises(CommandError, match="only grow"):
        run("ems_topics", "grow", "mails", "--partitions", "4")
    assert "takes no more messages" in run("ems_topics", "retire", "mails", "--yes")
    assert "nothing to do" in run("ems_topics", "retire", "mails", "--yes")
    (row,) = [row for row in parsed("ems_topics", "list") if row["topic"] == "mails"]
    assert (row["partitions"], row["access"]) == (5, "read-only")


def test_a_topic_is_deleted_with_preview(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "SETTLED_SECONDS", 0.0)
    preview = run("ems_topics", "delete", "orders", "--dry-run")
    assert preview.startswith("would delete orders: 10 messages, 2 consumer groups, 2 cursors")
    assert "orders is not retired" in preview
    assert "slow on orders has not finished 6 messages" in preview
    with pytest.raises(CommandError, match="not retired"):
        run("ems_topics", "delete", "orders")
    run("ems_topics", "retire", "orders", "--yes")
    with pytest.raises(CommandError, match="not finished"):
        run("ems_topics", "delete", "orders")
    assert Message.objects.count() == 10
    assert run("ems_topics", "delete", "orders", "--force").startswith("deleted orders:")
    assert not Topic.objects.exists()
