"""Takes pictures of every page: ``python -m tests.browser FOLDER [--docs]``.

The worst case and an empty installation; in light and dark mode and on a phone. With ``--docs``
only those of the documentation, into docs/images by default. Runs on the database that
EMS_TEST_DB names, in a test database of its own.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}
# Picture of the documentation: page, look, height.
DOCS = {
    "monitoring-overview": ("overview", "light", 900),
    "monitoring-group": ("group", "light", 1400),
    "monitoring-topic-dark": ("topic", "dark", 920),
    "monitoring-phone": ("overview", "phone", 844),
    "monitoring-backlog": ("backlog", "light", 1000),
    "monitoring-alarms": ("alarms", "light", 760),
}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "images")
    words.add_argument("--docs", action="store_true")
    asked = words.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django
    from django.conf import settings

    settings.TIME_ZONE = "UTC"
    django.setup()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with served() as (address, session):
        from tests.browser.chromium import Chromium
        from tests.browser.worst import make_worst

        chromium = Chromium()
        try:
            if not asked.docs:
                shoot(chromium, address, session, asked.folder, "empty-", ["light"])
            make_worst()
            if asked.docs:
                illustrate(chromium, address, session, asked.folder)
            else:
                from tests.browser.worst.work import work

                work()
                shoot(chromium, address, session, asked.folder, "", [*LOOKS])
        finally:
            chromium.close()


def shoot(
    chromium: Any, address: str, session: str, folder: Path, prefix: str, looks: list[str]
) -> None:
    from tests.browser.worst import tick

    for look in looks:
        tab = chromium.open(address, **LOOKS[look])
        tab.log_in(session)
        for name, path in pages().items():
            if not prefix:
                tick()
            tab.go(path)
            tab.picture(folder / f"{prefix}{name}-{look}.png")
        for problem in tab.problems:
            print(f"{look}: {problem}")
        tab.close()


def illustrate(chromium: Any, address: str, session: str, folder: Path) -> None:
    from tests.browser.png import shrink
    from tests.browser.worst import tick

    known = pages()
    for picture, (name, look, height) in DOCS.items():
        size = {"width": LOOKS[look].get("viewport", {"width": 1280})["width"], "height": height}
        tab = chromium.open(address, **{**LOOKS[look], "viewport": size})
        tab.log_in(session)
        tick()
        tab.go(known[name])
        tab.picture(folder / f"{picture}.png", whole=False)
        shrink(folder / f"{picture}.png")
        tab.close()


def pages() -> dict[str, str]:
    """Return the paths of all pages; of an empty installation, of those without a row."""
    from urllib.parse import quote

    from django.urls import reverse

    from streams.models import Consumer, ConsumerGroup, DeadMessage, Message, RetryMessage
    from tests.browser.shop import page

    names = [
        *("topics", "groups", "backlog", "search", "alarms", "streams"),
        *("pipeline", "audit", "archive", "components", "work"),
    ]
    found = {"overview": page("changelist"), **{name: page(name) for name in names}}
    found["index"] = reverse("admin:index")
    found["dead"] = reverse("admin:ems_deadmessage_changelist")
    groups = {group.name: group for group in ConsumerGroup.objects.select_related("topic")}
    if not groups:
        return found
    retry = RetryMessage.objects.latest("pk")
    traced = Message.objects.get(partition=retry.partition_id, offset=retry.offset)
    letter = DeadMessage.objects.latest("pk")
    client = quote(Consumer.objects.filter(group=groups["ledger"]).latest("pk").client_id)
    stuck = Consumer.objects.filter(group=groups["billing"]).order_by("client_id")[0]
    return {
        **found,
        "tasks": reverse("admin:ems_tasks_taskrun_changelist"),
        "topic": page("topic", groups["ledger"].topic_id),
        "group": page("group", groups["billing"].pk),
        "archived": page("archive") + "?topic=mails",
        "ledger": page("group", groups["ledger"].pk),
        "client": reverse("admin:ems_consumer_change", args=[stuck.pk]),
        "grouplist": reverse("admin:ems_consumergroup_changelist"),
        "day": page("group", groups["billing"].pk) + "?range=24h",
        "quarter": page("backlog") + "?range=90d",
        "week": page("group", groups["billing"].pk) + "?range=7d",
        "consumption": page("consumption", groups["ledger"].pk),
        "consumption-day": page("consumption", groups["ledger"].pk) + "?range=24h&by=failures",
        "consumption-month": page("consumption", groups["ledger"].pk) + "?range=30d&by=longest",
        "consumption-client": page("consumption", groups["ledger"].pk) + "?client=" + client,
        "consumption-none": page("consumption", groups["billing"].pk),
        "ranking-month": page("topics") + "?range=7d&by=bytes",
        "ranking-failures": page("topics") + "?by=failures",
        "ranking-between": page("topics") + "?since=2026-01-01T10:00&until=2026-01-01T11:00&by=lag",
        "search": page("search") + f"?q=payments/1@{retry.offset - 8}-{retry.offset}",
        "message": reverse("admin:ems_message_change", args=[traced.pk]),
        "letter": reverse("admin:ems_deadmessage_change", args=[letter.pk]),
        "edit": reverse("admin:ems_deadmessage_edit", args=[letter.pk]),
    }


@contextmanager
def served() -> Iterator[tuple[str, str]]:
    """Serve an empty test database; give the address, and the session of an operator."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client
    from django.test.utils import setup_databases, setup_test_environment, teardown_databases
    from pytest_django.live_server_helper import LiveServer

    from tests.settings import FOLDER

    FOLDER.mkdir(mode=0o700, exist_ok=True)
    setup_test_environment()
    settings.ALLOWED_HOSTS = ["*"]
    old = setup_databases(verbosity=0, interactive=False)
    server = LiveServer("127.0.0.1")
    try:
        client = Client()
        client.force_login(User.objects.create(username="mei", is_staff=True, is_superuser=True))
        yield server.url, client.cookies[settings.SESSION_COOKIE_NAME].value
    finally:
        server.stop()
        teardown_databases(old, verbosity=0)


if __name__ == "__main__":
    main()
