"""Opens each page, and does what runs beside them; says what that costs.

A limit is in milliseconds of processor time, of this process and of the server together: on a busy
machine the time by the clock says little.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import count as count_from

from tests.lab.benchmarks.contender import processor_seconds, server_pid
from tests.lab.benchmarks.figures import Options, Row, Value
from tests.lab.benchmarks.growth.counting import count
from tests.lab.benchmarks.pages.crowd import Crowd
from tests.lab.benchmarks.server import connect

ROUNDS = 15
PAGE, JSON, EVALUATION = 300.0, 100.0, 200.0  # limits in ms
ALARMS = 300


def figures(options: Options) -> Iterator[Row]:
    crowd = Crowd().small if options.quick else Crowd()
    if options.messages:
        crowd = replace(crowd, messages=options.messages)
    started = time.monotonic()
    crowd.fill()
    print(f"  {crowd.messages:,} messages: {time.monotonic() - started:.0f} s", flush=True)
    yield from measured(3 if options.quick else ROUNDS)


def measured(rounds: int = ROUNDS) -> Iterator[Row]:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    settings.ALLOWED_HOSTS = ["testserver"]
    logging.getLogger("streams").addHandler(logging.NullHandler())
    call_command("migrate", verbosity=0)
    user, _made = User.objects.get_or_create(
        username="bench", defaults={"is_staff": True, "is_superuser": True}
    )
    client = Client()
    client.force_login(user)

    def opens(url: str) -> Callable[[], None]:
        def work() -> None:
            answer = client.get(url)
            assert answer.status_code == 200, f"{url}: {answer.status_code}"
            assert answer.content

        return work

    for name, (url, frame, limit) in _urls().items():
        values = cost(opens(url), rounds)
        values["statements"] = int(values["statements"] or 0) - count(opens(frame)).statements
        yield _row(name, values, limit)
    yield from _beside(rounds)


def cost(
    work: Callable[[], object], rounds: int, before: Callable[[], object] | None = None
) -> dict[str, Value]:
    """Return what ``work`` costs: processor time, time by the clock, rows read, statements."""
    plain = connect()
    server = server_pid(plain)
    plain.close()
    before = before or (lambda: None)
    before()
    work()
    mine, theirs, clock = [], [], []
    for _ in range(rounds):
        before()
        began, here = time.perf_counter(), time.process_time()
        there = processor_seconds(server) if server else 0.0
        work()
        clock.append(time.perf_counter() - began)
        mine.append(time.process_time() - here)
        theirs.append((processor_seconds(server) if server else 0.0) - there)
    before()
    counted = count(work)
    ms = statistics.median(mine) * 1000
    of_server = statistics.mean(theirs) * 1000  # it is counted in steps of 10 ms
    return {
        "statements": counted.statements,
        "rows read": counted.reads,
        "client CPU, ms": round(ms, 1),
        "server CPU, ms": round(of_server, 1),
        "CPU, ms": round(ms + of_server, 1),
        "best, ms": round(min(clock) * 1000, 1),
        "median, ms": round(statistics.median(clock) * 1000, 1),
    }


def _urls() -> dict[str, tuple[str, str, float]]:
    """Return (URL, URL of the frame alone, limit) by the name of the page."""
    from django.urls import reverse

    from streams.models import ConsumerGroup, Message

    def page(name: str, *args: int) -> str:
        return reverse(f"admin:ems_monitoring_overview_{name}", args=args)

    group = ConsumerGroup.objects.order_by("pk")[0]
    message = Message.objects.filter(offset__isnull=False).order_by("pk")[0]
    pages = {
        "overview": page("changelist"),
        "topics": page("topics"),
        "topic": page("topic", group.topic_id),
        "groups": page("groups"),
        "group": page("group", group.pk),
        "alarms": page("alarms"),
        "pipeline": page("pipeline"),
        "search, a place": f"{page('search')}?q=topic-00/0@17",
        "search, a tag that no message has": f"{page('search')}?q=tag:none",
        **{
            f"{name}, 7 days": f"{url}?range=7d"
            for name, url in (
                ("overview", page("changelist")),
                ("topic", page("topic", group.topic_id)),
                ("group", page("group", group.pk)),
            )
        },
    }
    charts = {
        "topic, JSON": f"{page('topic', group.topic_id)}?format=json",
        "group, JSON": f"{page('group', group.pk)}?format=json",
    }
    lists = {
        "message": reverse("admin:ems_message_change", args=[message.pk]),
        "dead letters": reverse("admin:ems_deadmessage_changelist"),
    }
    # A page with nothing of its own: session, user, permissions, banner, snapshot.
    empty = page("components")
    others = reverse("admin:app_list", args=["ems"])
    return {
        **{name: (url, empty, PAGE) for name, url in pages.items()},
        **{name: (url, f"{empty}?format=json", JSON) for name, url in charts.items()},
        **{name: (url, others, PAGE) for name, url in lists.items()},
    }


def _beside(rounds: int) -> Iterator[Row]:
    """Measure what runs each minute and each 15 s."""
    from monitoring.alarms.audit import audit_newest
    from monitoring.alarms.evaluation import evaluate
    from monitoring.models import Alarm, AlarmChannel, AlarmNotification
    from monitoring.sample.grain import floor
    from monitoring.sample.take import take
    from streams.database.clock import database_now

    def step(work: Callable[[str], object]) -> Callable[[], object]:
        return lambda: work("default")

    def forget() -> None:
        AlarmNotification._base_manager.all().delete()
        Alarm._base_manager.all().delete()

    def fire() -> None:
        forget()
        with rising(ALARMS):
            evaluate("default")

    this_minute = floor(database_now("default"), 1)
    minutes = (this_minute + timedelta(minutes=n) for n in count_from(1))
    yield _row("sample", cost(lambda: take("default", next(minutes), 1), rounds))
    yield _row("audit, nothing new", cost(step(audit_newest), rounds))
    channel = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
    AlarmChannel.objects.get_or_create(name="ops", defaults=channel)
    yield _row("alarms, nothing new", cost(step(evaluate), rounds), EVALUATION)
    with rising(ALARMS):
        costs = cost(step(evaluate), rounds, forget)
        assert Alarm.objects.firing().count() >= ALARMS
        yield _row(f"alarms, {ALARMS} fire at once", costs, EVALUATION)
        yield _row(f"alarms, {ALARMS} go on", cost(step(evaluate), rounds), EVALUATION)
    yield _row(f"alarms, {ALARMS} are resolved", cost(step(evaluate), rounds, fire), EVALUATION)


@contextmanager
def rising(alarms: int) -> Iterator[None]:
    """Let the metric ``lag`` be above its threshold for so many groups."""
    from monitoring.alarms.measured import Subject, Value
    from monitoring.alarms.metrics import METRICS

    before = METRICS["lag"]
    values = {Subject("orders", f"group-{n}"): Value(1e9) for n in range(alarms)}
    METRICS["lag"] = replace(before, values=lambda using: values, for_seconds=0, enabled=True)
    try:
        yield
    finally:
        METRICS["lag"] = before


def _row(name: str, values: dict[str, Value], limit: float | None = None) -> Row:
    spent = float(values["CPU, ms"] or 0)
    slow = limit is not None and spent > limit
    failure = f"{spent:g} ms of processor time, at most {limit:g}" if slow else ""
    return Row(name, {**values, "limit, ms": limit}, failure)
