"""The log of the admin names whoever acted, in whatever project."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from streams.admin.parts import journal
from streams.models import Topic

pytestmark = pytest.mark.django_db


def test_the_key_of_a_user_need_not_be_a_number(monkeypatch):
    entries: list[Any] = []
    monkeypatch.setattr(LogEntry.objects, "bulk_create", entries.extend)
    request: Any = SimpleNamespace(user=SimpleNamespace(pk="anna@example.org"))
    topic = Topic.objects.create(name="orders")
    journal.note(request, [(topic, "Retired")])
    assert [entry.user_id for entry in entries] == ["anna@example.org"]


def test_an_entry_has_the_user_and_the_outcome():
    user = User.objects.create(username="anna")
    topic = Topic.objects.create(name="orders")
    request: Any = SimpleNamespace(user=user)
    journal.note(request, [(topic, "Retired")])
    journal.note_bulk(request, Topic, "all", "Retired")
    assert [entry.user for entry in LogEntry.objects.all()] == [user, user]
