"""Defines who works in the admin: nobody, staff without permission, a viewer, an operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.admin.world import World, make_world

ROLES = ("anonymous", "staff", "viewer", "operator")
As = Callable[..., Client]


@pytest.fixture
def world(db: None, clean_registry: None) -> World:
    return make_world()


@pytest.fixture
def as_role(db: None) -> As:
    """``as_role("viewer")`` is a browser of that user; ``as_role("staff", "ems.view_body")`` one
    of a user with these permissions."""

    def log_in(role: str, *permissions: str, **options: Any) -> Client:
        client = Client(**options)
        if role == "anonymous":
            return client
        user, _ = User.objects.get_or_create(username=role, is_staff=True)
        user.user_permissions.set(_of_role(role))
        for name in permissions:
            app, codename = name.split(".")
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label=app, codename=codename)
            )
        client.force_login(user)
        return client

    return log_in


def _of_role(role: str) -> list[Permission]:
    of_ems = Permission.objects.filter(content_type__app_label="ems")
    if role == "viewer":
        views = [
            f"view_{model._meta.model_name}" for model in apps.get_app_config("ems").get_models()
        ]
        return list(of_ems.filter(codename__in=views))
    return list(of_ems) if role == "operator" else []


def action(name: str, *pks: int, **more: str) -> dict[str, Any]:
    """Return what the list posts when an action is chosen for these rows."""
    return {"action": name, "index": "0", "_selected_action": [str(pk) for pk in pks], **more}


def offered(shown: Any) -> str:
    """Return the offer of a preview, which the button of its form posts."""
    found = re.search(r'name="offer" value="([^"]*)"', shown.text)
    assert found, shown.text
    return found[1]


def messages(client: Any, response: Any) -> list[str]:
    """Return what the page says to which an answer leads."""
    assert response.status_code == 302
    return [str(message) for message in client.get(response.url).context["messages"]]
