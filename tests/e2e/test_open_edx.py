"""The event bus of docs/guides/open-edx.md, with openedx-events, in a project of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import environments
from tests.docs.documents import DOCS, files

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(900)]

GUIDE = DOCS / "guides" / "open-edx.md"

SETTINGS = """
from pathlib import Path

INSTALLED_APPS = [
    "django.contrib.contenttypes", "django.contrib.auth", "streams", "openedx_events", "shop",
]
HERE = Path(__file__).resolve().parent.parent
DATABASES = {"default": {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": HERE / "db.sqlite3",
    "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"},
}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "of a test"
USE_TZ = True
EMS = {"STATE_DIR": HERE / "state", "RETRY_DELAYS": [0.1]}
"""

PLAY = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.db import transaction
from openedx_events.event_bus import get_producer, make_single_consumer
from openedx_events.learning.data import UserData, UserPersonalData
from openedx_events.learning.signals import STUDENT_REGISTRATION_COMPLETED as REGISTERED
from streams import send
from streams.models import DeadMessage
from streams.testing import sent

assert type(get_producer()).__name__ == "Producer"

def register(name):
    pii = UserPersonalData(username=name, email=f"{name}@example.com", name=name)
    REGISTERED.send_event(user=UserData(pii=pii, is_active=True, id=7))

register("ann")
try:
    with transaction.atomic():
        register("rolled-back")
        raise ValueError
except ValueError:
    pass
with transaction.atomic():
    register("bob")
send("registrations", b"of somebody else")
assert [one.key for one in sent("registrations")] == ["ann", "bob", None]

seen, fails = [], {"bob"}

def receive(signal, user, metadata, **rest):
    if user.pii.username in fails:
        fails.remove(user.pii.username)
        raise RuntimeError("once")
    seen.append((user.pii.username, metadata.event_type))

REGISTERED.connect(receive)
bus = make_single_consumer(topic="registrations", group_id="mailer", start="earliest")
while not (len(seen) == 2 and DeadMessage.objects.exists()):
    bus.consume_indefinitely("--drain")
assert seen == [(name, REGISTERED.event_type) for name in ("ann", "bob")], seen
assert len(sent("registrations")) == 3  # what came from the bus is not sent again
dead = DeadMessage.objects.get()
assert "no event that is known" in dead.error, dead.error
print("played")
"""


def test_events_are_sent_with_the_transaction_and_received_in_another_process(
    tmp_path: Path,
) -> None:
    python = environments.open_edx()
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    found = files(GUIDE)
    (shop / "event_bus.py").write_text(found["shop/event_bus.py"])
    (shop / "settings.py").write_text(SETTINGS + found["shop/settings.py"])
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [python, "-c", PLAY], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "played" in done.stdout
