"""Writes what is wrong: a stuck call, a blocked partition, dead letters, retries."""

from __future__ import annotations

from datetime import timedelta

from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Partition,
    RetryMessage,
    State,
    UtcNow,
)
from tests.browser.worst.figures import DEAD, ERRORS, MINUTE
from tests.browser.worst.site import messages

TRACE = """Traceback (most recent call last):
  File "/srv/shop/payments/consumers.py", line 41, in charge
    receipt = bank.charge(message.body["card"], message.body["amount"])
  File "/srv/shop/payments/bank.py", line 88, in charge
    raise CardDeclined(f"{answer.code}: {answer.text}")
shop.payments.CardDeclined: 51: insufficient funds
"""


def stuck(group: ConsumerGroup) -> None:
    """One call runs for 23 minutes, the other client waits for its turn."""
    clients = group.clients.order_by("client_id")
    for number, cursor in enumerate(group.cursors.order_by("partition__number")[:2]):
        first = cursor.next_offset - 100
        usual(group, cursor.partition, first)
        started = UtcNow(-23 * MINUTE) if number == 0 else UtcNow(-timedelta(seconds=41))
        Delivery.objects.create(
            group=group,
            partition=cursor.partition,
            first_offset=first,
            last_offset=first + 99,
            progress=first + 37,
            client_id=clients[number].client_id,
            thread=f"billing-{number}",
            token=f"token-{number}",
            claimed_at=UtcNow(-24 * MINUTE) if number == 0 else UtcNow(-MINUTE),
            started_at=started,
            deadline=UtcNow(7 * MINUTE) if number == 0 else UtcNow(timedelta(seconds=19)),
        )


def usual(group: ConsumerGroup, partition: Partition, before: int) -> None:
    """Three claims before these took 1.8 s each."""
    for number in range(1, 4):
        Delivery.objects.create(
            group=group,
            partition=partition,
            first_offset=before - 100 * number,
            last_offset=before - 100 * number + 99,
            progress=before - 100 * number + 100,
            client_id="10.0.4.20@3100@billing",
            thread="billing-0",
            state=State.DONE,
            claimed_at=UtcNow(-25 * MINUTE),
            started_at=UtcNow(-25 * MINUTE),
            finished_at=UtcNow(-25 * MINUTE + timedelta(seconds=1.8)),
            deadline=UtcNow(-24 * MINUTE),
        )


def paused(group: ConsumerGroup) -> None:
    ConsumerGroup.objects.filter(pk=group.pk).update(paused_at=UtcNow(-3 * 24 * 60 * MINUTE))


def blocked(group: ConsumerGroup) -> None:
    cursor = group.cursors.order_by("partition__number")[0]
    Cursor.objects.filter(pk=cursor.pk).update(
        attempt=7,
        blocked_until=UtcNow(4 * MINUTE),
        blocked_at=UtcNow(-16 * MINUTE),
        last_error=f"{ERRORS[1]}: no answer within 30 s",
    )


def dead(group: ConsumerGroup) -> None:
    log = group.topic.partitions.order_by("number")[0]
    DeadMessage.objects.bulk_create(
        (
            DeadMessage(
                topic=group.topic,
                group=group,
                partition=log,
                offset=log.next_offset - DEAD + n - 200,
                message_id=n + 1,
                body=b'{"card": "\\u2026 4711", "amount": "49.90", "order": %d}' % n,
                body_type="json",
                size=52,
                key=f"customer-{n * 7919 % 4000}",
                producer="10.0.4.17@2188@MainThread",
                sent_at=UtcNow(-3 * 60 * MINUTE),
                attempts=17,
                error_class=ERRORS[0 if n % 10 < 7 else 1 if n % 10 < 9 else 2],
                error=("51: insufficient funds", "no answer within 30 s", "'iban'")[
                    0 if n % 10 < 7 else 1 if n % 10 < 9 else 2
                ],
                traceback=TRACE,
                died_at=UtcNow(-(DEAD - n) * MINUTE * 150 / DEAD),
            )
            for n in range(DEAD)
        ),
        500,
    )


def retries(group: ConsumerGroup) -> None:
    log = group.topic.partitions.order_by("number")[0]
    RetryMessage.objects.bulk_create(
        RetryMessage(
            group=group,
            partition=log,
            offset=log.next_offset - 400 + n,
            attempt=2 + n % 9,
            due_at=UtcNow(timedelta(seconds=7 * n)),
            last_error=f"{ERRORS[1]}: no answer within 30 s",
        )
        for n in range(310)
    )


def traced(groups: dict[str, ConsumerGroup]) -> None:
    """One payment that ledger has tried three times, and fraud-scores has done."""
    log = groups["ledger"].topic.partitions.order_by("number")[1]
    offset = groups["fraud-scores"].cursors.get(partition=log).next_offset - 30
    messages(log, offset - 9, 10, timedelta(seconds=61))
    RetryMessage.objects.create(
        group=groups["ledger"],
        partition=log,
        offset=offset,
        attempt=4,
        due_at=UtcNow(MINUTE),
        last_error=f"{ERRORS[1]}: no answer within 30 s",
    )
    for name, attempt, claimed, started, ended, state in (
        ("ledger", 1, 60, 59, 55, State.RETRY),
        ("ledger", 2, 44, 43, 35, State.RETRY),
        ("ledger", 3, 14, 13, 5, State.RETRY),
        ("fraud-scores", 1, 58, 50, 46, State.DONE),
    ):
        failed = state == State.RETRY
        Delivery.objects.create(
            group=groups[name],
            partition=log,
            first_offset=offset,
            last_offset=offset,
            progress=offset + 1,
            kind="new" if attempt == 1 else "retry",
            attempt=attempt,
            client_id=f"10.0.4.{20 + attempt}@{3100 + attempt}@7f3a",
            thread=f"{name}-{attempt}",
            token=f"{name}-{attempt}",
            state=state,
            claimed_at=UtcNow(-timedelta(seconds=claimed)),
            started_at=UtcNow(-timedelta(seconds=started)),
            finished_at=UtcNow(-timedelta(seconds=ended)),
            deadline=UtcNow(),
            failed=int(failed),
            error=f"{ERRORS[1]}: no answer within 30 s" if failed else "",
        )
