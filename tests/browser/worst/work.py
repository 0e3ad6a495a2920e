"""Writes background work: two million tasks that wait, some that run, 5,803 that failed."""

from __future__ import annotations

from datetime import datetime, timedelta

from streams.contrib.tasks.models import TaskRun
from streams.database.clock import database_now
from streams.models import ConsumerGroup, DeadMessage, Delivery, Message, Partition, UtcNow
from tests.browser.worst.figures import BEHIND, DEAD, END, MINUTE
from tests.browser.worst.site import group, topic

TASKS = ("shop.mails.tasks.send_receipt", "shop.reports.tasks.make_monthly_statement_of_account")
ERRORS = ("smtplib.SMTPServerDisconnected", "shop.reports.errors.TemplateMissing", "KeyError")
WORKER = "10.0.4.20@3100@worker-{}"


def work() -> None:
    logs = {
        "tasks.mails": topic("tasks.mails", 1, END, 40.0),
        "tasks.reports": topic("tasks.reports", 1, 30_000, 1.0),
        "tasks.default": topic("tasks.default", 1, 400, 0.0),
    }
    groups = {
        name: group("tasks", name, behind, 10.0, 2, {}, logs)
        for name, behind in (("tasks.mails", BEHIND), ("tasks.reports", 12), ("tasks.default", 0))
    }
    waiting(groups["tasks.mails"], logs["tasks.mails"][0])
    failed(groups["tasks.mails"], logs["tasks.mails"][0])
    running(groups["tasks.reports"], logs["tasks.reports"][0])


def waiting(group: ConsumerGroup, partition: Partition) -> None:
    first = partition.next_offset - BEHIND
    Message.objects.filter(partition=partition, offset__range=(first, first + 599)).delete()
    Message.objects.bulk_create(
        Message(
            partition=partition,
            offset=first + number,
            tag=TASKS[number % 7 == 0],
            body=b'{"args": [1], "kwargs": {}}',
            body_type="json",
            size=27,
            producer="web@1@main",
            sequenced_at=UtcNow(-60 * MINUTE),
        )
        for number in range(600)
    )


def failed(group: ConsumerGroup, partition: Partition) -> None:
    DeadMessage.objects.bulk_create(
        [
            DeadMessage(
                topic=group.topic,
                group=group,
                partition=partition,
                offset=number,
                message_id=number,
                tag=TASKS[number % 5 == 0],
                body=b"{}",
                body_type="json",
                size=2,
                producer="web@1@main",
                sent_at=UtcNow(-90 * MINUTE),
                attempts=5,
                error_class=ERRORS[(number % 11 == 0) + (number % 97 == 0)],
                error="no",
                died_at=UtcNow(-timedelta(seconds=number)),
            )
            for number in range(DEAD)
        ],
        batch_size=500,
    )


def running(group: ConsumerGroup, partition: Partition) -> None:
    now = database_now("default")
    first = partition.next_offset - 12
    for number in range(4):  # what is usual
        begun = now - timedelta(hours=1)
        run(f"d{number}", number, "SUCCESSFUL", begun, finished_at=begun + timedelta(seconds=4))
    for number, age in enumerate((47 * MINUTE, 5 * MINUTE, timedelta(seconds=3))):
        run(f"r{number}", first + number, "RUNNING", now - age)
        if number == 1:
            continue  # its process has died
        Delivery.objects.create(
            group=group,
            partition=partition,
            first_offset=first + number,
            last_offset=first + number,
            progress=first + number,
            client_id=WORKER.format(number),
            thread=f"worker-{number}",
            token=f"work-{number}",
            claimed_at=UtcNow(-age),
            started_at=UtcNow(-age),
            deadline=UtcNow(MINUTE),
        )


def run(
    result_id: str, offset: int, status: str, begun: datetime, finished_at: datetime | None = None
) -> None:
    TaskRun.objects.create(
        result_id=result_id,
        message_id=offset,
        partition=0,
        offset=offset,
        backend="default",
        queue="reports",
        path=TASKS[1],
        arguments={"args": [], "kwargs": {}},
        status=status,
        enqueued_at=begun,
        started_at=begun,
        last_attempted_at=begun,
        finished_at=finished_at,
        attempts=1,
        worker_ids=[WORKER.format(offset % 10)],
    )
