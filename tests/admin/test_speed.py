"""How long the server takes for each list with a million messages.

The figures are in docs/about/benchmarks/admin.md.
"""

from __future__ import annotations

import statistics
import time

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from streams.models import ConsumerGroup, DeadMessage, Message, Partition
from tests.admin.crowd import fill

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.bench,
    pytest.mark.mysql,
    pytest.mark.timeout(1800),
]

LIMIT_SECONDS = 0.3
ROUNDS = 7


@pytest.fixture(scope="module")
def crowd(django_db_setup, django_db_blocker, pytestconfig):
    with django_db_blocker.unblock():
        fill()
        user, _ = User.objects.get_or_create(
            username="root", defaults={"is_staff": True, "is_superuser": True}
        )
        yield user
        if not pytestconfig.getoption("reuse_db"):
            call_command("flush", verbosity=0, interactive=False)


def lists() -> list[tuple[str, str]]:
    """(what, URL): each list as it comes, and each way to narrow it."""
    busy, quiet = (Partition.objects.get(topic__name=name).pk for name in ("orders", "quiet"))
    mail, archive = (ConsumerGroup.objects.get(name=name).pk for name in ("mail", "archive"))
    newest = Message.objects.order_by("-pk").values_list("pk", flat=True)[0]
    asked = {
        "message": [
            "",
            "p=200",
            f"partition={busy}",
            f"partition={quiet}",
            f"partition={busy}&p=200",
            "state=log",
            "state=inbox",
            "state=delayed",
            f"partition={busy}&state=inbox",
            f"q={newest}",
            "q=orders@500000",
            "q=orders@500000&state=log",
            "q=orders@500000-500100",
            "q=key-899990",
            "q=nothing-like-this",
            f"partition={busy}&q=nothing-like-this",
            f"partition={quiet}&q=key-99",
            "q=nothing-like-this&upto=500000",
        ],
        "delivery": [
            "",
            "p=200",
            f"group={mail}",
            f"group={archive}",
            "state=START",
            "state=RETRY",
            "state=RELEASED",
            f"group={archive}&state=RETRY",
            "kind=replay",
            "q=orders@500000",
            "q=10.0.0.1@7@abc",
            "q=10.9.9.9",
        ],
        "deadmessage": [
            "",
            f"group={mail}",
            f"group={archive}",
            f"group={mail}&state=waiting",
            f"group={archive}&state=redriven",
            "state=waiting",
            "state=redriven",
            "q=orders@500",
            "q=ValueError",
            "q=nothing-like-this",
            f"group={mail}&q=nothing-like-this",
        ],
        "retrymessage": ["", f"group={mail}", f"group={mail}&state=due", "state=held", "q=77"],
        "consumergroup": ["", "paused=1"],
        "topic": [""],
        "partition": [""],
        "cursor": [""],
        "consumer": [""],
    }
    return [
        (f"{model}?{query}", reverse(f"admin:ems_{model}_changelist") + f"?{query}")
        for model, queries in asked.items()
        for query in queries
    ]


def test_every_list_answers_within_300_ms_with_a_million_messages(crowd, capsys):
    client = Client()
    client.force_login(crowd)
    letter = DeadMessage.objects.order_by("-pk")[0]
    message = Message.objects.get(partition__topic__name="orders", offset=1000)
    pages = [
        *lists(),
        ("message page with trace", reverse("admin:ems_message_change", args=[message.pk])),
        ("dead letter page", reverse("admin:ems_deadmessage_change", args=[letter.pk])),
    ]
    rows, slow = [], []
    for what, url in pages:
        seconds = []
        for _ in range(ROUNDS):
            with CaptureQueriesContext(connection) as queries:
                started = time.perf_counter()
                response = client.get(url)
                seconds.append(time.perf_counter() - started)
            assert response.status_code in (200, 302), f"{url}: {response.status_code}"
        median = statistics.median(seconds)
        in_database = sum(float(query["time"]) for query in queries)
        rows.append((what, min(seconds), median, len(queries), in_database))
        if min(seconds) > LIMIT_SECONDS:
            slow.append(f"{what}: {median:.3f} s")
            slow += sorted(f"{q['time']} {q['sql'][:600]}" for q in queries)[-3:]
    with capsys.disabled():
        print("\n| page | best ms | median ms | statements | of it in the database, ms |")
        print("|---|---|---|---|---|")
        for what, best, median, count, in_database in rows:
            print(
                f"| `{what}` | {best * 1000:.0f} | {median * 1000:.0f} | {count} |"
                f" {in_database * 1000:.0f} |"
            )
    assert not slow, "\n".join(slow)
