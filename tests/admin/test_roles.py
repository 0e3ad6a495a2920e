"""Every address of the admin of EMS, for every role, by every method."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from streams.models import (
    ApiRight,
    ApiToken,
    CheckEndpoint,
    ConsumerGroup,
    DeadMessage,
    KeyEntry,
    Move,
    Rewind,
    StressRun,
    SystemConfig,
    Topic,
)
from tests.admin.conftest import ROLES, action
from tests.admin.world import World, snapshot

pytestmark = pytest.mark.django_db

REGISTERED: dict[Any, Any] = {
    model: model_admin
    for model, model_admin in admin.site._registry.items()
    if model._meta.app_label == "ems"
}
ADDABLE = {ApiToken, Topic, SystemConfig, CheckEndpoint}
CHANGEABLE = {ApiToken, Topic, ConsumerGroup, SystemConfig, CheckEndpoint}
DELETABLE = {SystemConfig, CheckEndpoint}
# What any confirmation page might ask for.
EVERY_ANSWER = {
    "typed": "3",
    "post": "yes",
    "offer": "yes",
    "to": "2",
    "from": "0",
    "message": "",
    "force": "1",
    "body": "1",
}
ACTIONS = (
    "redrive",
    "discard",
    "pause",
    "resume",
    "retry",
    "skip",
    "give-up",
    "order-by-key",
    "reset",
    "undo",
    "replay",
    "cancel-replay",
    "delete",
    "forget",
    "rehearse",
    "produce",
    "grow",
    "retire",
    "remove",
    "delete_selected",
    "check",
    "commit",
    "rollback",
    "resend",
    "test",
)


def pages(world: World) -> list[tuple[Any, str, str]]:
    """(model, page, URL) of everything that is there: what is new is walked too."""
    found = [(None, "app_list", reverse("admin:app_list", args=["ems"]))]
    for model, model_admin in REGISTERED.items():
        pk = world.object_of(model).pk
        for pattern in model_admin.get_urls():
            arguments = [pk] if "object_id" in str(pattern.pattern) else []
            if pattern.name is None:  # Django's redirect from …/ID/ to …/ID/change/
                base = reverse(f"admin:ems_{model._meta.model_name}_changelist")
                found.append((model, "redirect", f"{base}{pk}/"))
                continue
            page = pattern.name.rpartition("_")[2]
            found.append((model, page, reverse(f"admin:{pattern.name}", args=arguments)))
    return found


def expected(role: str, model: Any, page: str, method: str) -> int:
    """The status that this role must get; an unknown page is a KeyError: say who may see it."""
    if role == "anonymous":
        return 302  # to the login
    if page == "redirect":
        return 302
    if page == "edit":
        return 200 if role == "operator" else 403
    if page == "body" and method == "POST":
        return 405
    if role == "staff":
        return 404 if page == "app_list" else 403
    may_write = role == "operator"
    return {
        "app_list": 200,
        "changelist": 200,
        "history": 200,
        "body": 200 if may_write else 403,
        "add": 200 if may_write and model in ADDABLE else 403,
        "delete": 200 if may_write and model in DELETABLE else 403,
        "change": 200 if may_write and model in CHANGEABLE else 200 if method == "GET" else 403,
    }[page]


def test_every_table_has_a_page():
    from django.apps import apps

    # The index of keys has none: the list of messages searches in it. Stress tests are shown over
    # HTTP, rights with their token, rewinds by the doctor, moves by nothing: what they have done is
    # seen in the topics.
    without = {ApiRight, KeyEntry, Move, Rewind, StressRun}
    assert {*REGISTERED, *without} == set(apps.get_app_config("ems").get_models())


@pytest.mark.parametrize(
    "role", [*ROLES[:2], *(pytest.param(role, marks=pytest.mark.exhaustive) for role in ROLES[2:])]
)
def test_every_page_answers_each_role_as_it_must(world, as_role, role):
    client = as_role(role)
    wrong = []
    before = snapshot()
    for method in ("GET", "POST"):
        for model, page, url in pages(world):
            if method == "POST" and role == "operator" and page in ("change", "delete"):
                continue  # these change rows, as they must: see the other tests
            status = client.generic(method, url).status_code
            wanted = expected(role, model, page, method)
            if status != wanted:
                wrong.append(f"{method} {url}: {status}, not {wanted}")
    assert not wrong, "\n".join(wrong)
    assert snapshot() == before


@pytest.mark.timeout(400)  # thousands of requests
@pytest.mark.parametrize(
    "role",
    ["anonymous", *(pytest.param(role, marks=pytest.mark.exhaustive) for role in ROLES[1:3])],
)
def test_no_post_without_permission_changes_a_row(world, as_role, role):
    client = as_role(role)
    before = snapshot()
    for model, page, url in pages(world):
        pk = world.object_of(model).pk if model else 0
        if page == "changelist":
            for name in ACTIONS:
                for across in ("0", "1"):
                    client.post(url, action(name, pk, select_across=across, **EVERY_ANSWER))
        elif page == "delete":
            client.post(url, {"post": "yes"})
        elif page in ("change", "add"):
            client.post(url, {"name": "consumerThreads", "value": "1", "access": "denied"})
        elif page == "edit":
            client.post(url, {"body": "1", "body_type": "json", **EVERY_ANSWER})
    assert snapshot() == before


@pytest.mark.exhaustive
def test_every_permission_alone_opens_only_its_own_action(world, as_role):
    """Of the actions in the menu, each user sees those of his permissions."""
    wanted = {
        "redrive_deadmessage": (DeadMessage, "redrive"),
        "discard_deadmessage": (DeadMessage, "discard"),
        "pause_consumergroup": (ConsumerGroup, "pause"),
        "resume_consumergroup": (ConsumerGroup, "resume"),
        "retry_consumergroup": (ConsumerGroup, "retry"),
        "skip_consumergroup": (ConsumerGroup, "skip"),
        "give_up_consumergroup": (ConsumerGroup, "give-up"),
        "forget_consumergroup": (ConsumerGroup, "delete"),
        "reset_consumergroup": (ConsumerGroup, "reset", "undo"),
        "replay_consumergroup": (ConsumerGroup, "replay", "cancel-replay"),
        "rehearse_consumergroup": (ConsumerGroup, "rehearse"),
        "produce_topic": (Topic, "produce"),
        "grow_topic": (Topic, "grow"),
        "retire_topic": (Topic, "retire"),
        "delete_topic": (Topic, "remove"),
    }
    for permission, (model, *names) in wanted.items():
        client = as_role("viewer", f"ems.{permission}")
        for page_model in (DeadMessage, ConsumerGroup, Topic):
            url = reverse(f"admin:ems_{page_model._meta.model_name}_changelist")
            form = client.get(url).context["action_form"]
            offered = (
                [] if form is None else [key for key, _ in form.fields["action"].choices if key]
            )
            # Dead letters are rehearsed with the handler of their group.
            here = page_model is model or (names == ["rehearse"] and page_model is DeadMessage)
            assert offered == (names if here else [])


def test_a_post_without_a_csrf_token_is_refused(world, as_role):
    client = as_role("operator", enforce_csrf_checks=True)
    before = snapshot()
    for model in (DeadMessage, ConsumerGroup, Topic):
        url = reverse(f"admin:ems_{model._meta.model_name}_changelist")
        for name in ACTIONS:
            pk = world.object_of(model).pk
            response = client.post(url, action(name, pk, **EVERY_ANSWER))
            assert response.status_code == 403
    assert snapshot() == before


def test_a_get_never_acts(world, as_role):
    client = as_role("operator")
    before = snapshot()
    for model in (DeadMessage, ConsumerGroup, Topic):
        url = reverse(f"admin:ems_{model._meta.model_name}_changelist")
        for name in ACTIONS:
            client.get(url, action(name, world.object_of(model).pk, **EVERY_ANSWER))
    assert snapshot() == before
    assert not LogEntry.objects.exists()
