"""Every act on every face: shown without a change, done once, refused if stale, and noted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model

from streams.admin.pages.token import PERMISSIONS
from streams.http.routes.acts import PLACES
from streams.models import (
    ApiToken,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    Partition,
    PreparedRow,
    Reader,
    Redrive,
    RetryMessage,
    Topic,
)
from streams.operate.acts import ACTS
from streams.operate.acts.act import Consent, arguments
from tests.admin.conftest import As
from tests.consuming import rows
from tests.contract.faces import PATHS, Command, Http, Page, Refused
from tests.contract.stages import STAGES, AnyAct
from tests.http.conftest import Api, MakeToken

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

TABLES = (
    *(Topic, Partition, ConsumerGroup, Cursor, Delivery),
    *(HeldKey, RetryMessage, DeadMessage, Redrive, PreparedRow, Reader),
)
# Those of other apps have tests of their own: tests/tasks_/test_operating.py.
ALL = [act for noun, acts in ACTS.items() if noun._meta.app_label == "ems" for act in acts]
PREVIEWED = [act for act in ALL if act.previewed]

each = pytest.mark.parametrize("act", ALL, ids=lambda act: act.__name__)
each_previewed = pytest.mark.parametrize("act", PREVIEWED, ids=lambda act: act.__name__)
asked = pytest.mark.parametrize(
    "act", [act for act in ALL if arguments(act)], ids=lambda act: act.__name__
)
NOUNS = {act: noun for noun, acts in ACTS.items() for act in acts}
# Over HTTP there are no acts on prepared messages: their callers decide there.
OVER_HTTP = [act for act in ALL if NOUNS[act] in PATHS]
previewed_on_each_face = pytest.mark.parametrize(
    ("act", "face"),
    [(act, face) for act in PREVIEWED for face in ("page", "http")[: 1 + (act in OVER_HTTP)]],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)


@pytest.fixture
def page(as_role: As) -> Page:
    return Page(as_role("operator"))


@pytest.fixture
def http(api: Api, make_token: MakeToken) -> Http:
    """The token belongs to a user: what it does is noted in the admin's log."""
    api.token = make_token("manage", "read", "dead")
    user, _made = get_user_model().objects.get_or_create(username="owner")
    ApiToken.objects.update(owner=str(user.pk))
    return Http(api)


@pytest.fixture
def command(run: Any) -> Command:
    return Command(run)


def now() -> Any:
    return rows(*TABLES)


def test_every_act_has_a_stage() -> None:
    assert set(STAGES) == set(ALL)


@previewed_on_each_face
def test_what_was_shown_is_done_once(
    act: AnyAct, face: str, request: pytest.FixtureRequest
) -> None:
    through = request.getfixturevalue(face)
    stage = STAGES[act]
    row = stage.make()
    before = now()
    token = through.preview(act, row, stage.arguments)
    assert now() == before
    through.carry_out(act, row, token)
    after = now()
    assert after != before
    with pytest.raises(Refused):
        through.carry_out(act, row, token)
    assert now() == after
    assert LogEntry.objects.count() == 1


@previewed_on_each_face
def test_what_is_not_so_any_more_is_not_done(
    act: AnyAct, face: str, request: pytest.FixtureRequest
) -> None:
    through = request.getfixturevalue(face)
    stage = STAGES[act]
    row = stage.make()
    token = through.preview(act, row, stage.arguments)
    stage.disturb(row)
    before = now()
    with pytest.raises(Refused):
        through.carry_out(act, row, token)
    assert now() == before
    assert not LogEntry.objects.exists()


@each_previewed
def test_a_command_shows_it_asks_and_does_it(act: AnyAct, command: Command) -> None:
    stage = STAGES[act]
    row = stage.make()
    before = now()
    assert act.name in command.preview(act, row, stage.arguments)
    assert now() == before
    command.carry_out(act, row, stage.arguments)
    assert now() != before


@each
def test_an_act_without_a_preview_is_done_however_often(
    act: AnyAct, page: Page, http: Http, command: Command
) -> None:
    if act.previewed:
        return
    row = STAGES[act].make()
    before = now()
    page.carry_out(act, row, "")
    after = now()
    assert after != before
    if act in OVER_HTTP:
        http.carry_out(act, row, "")
    command.carry_out(act, row, {})
    assert now() == after
    assert LogEntry.objects.count() == 1


@asked
@pytest.mark.parametrize("face", ["page", "http", "command"])
def test_a_wrong_argument_is_said(act: AnyAct, face: str, request: pytest.FixtureRequest) -> None:
    through = request.getfixturevalue(face)
    stage = STAGES[act]
    row = stage.make()
    before = now()
    with pytest.raises(Refused):
        through.preview(act, row, stage.wrong)
    assert now() == before


@each
def test_only_its_permission_lets_it_be_done(
    act: AnyAct, as_role: As, api: Api, make_token: MakeToken
) -> None:
    stage = STAGES[act]
    row = stage.make()
    before = now()
    others = {one.permission for one in ALL} - {act.permission}
    views = f"ems.view_{row._meta.model_name}"
    page = Page(as_role("staff", views, *others))
    # The list is shown again: there is no such action for this user.
    page._posted(act, row, **stage.arguments)
    if act in OVER_HTTP:
        api.token = make_token("read", "send", "consume:orders/mail")
        with pytest.raises(Refused, match="forbidden"):
            Http(api).preview(act, row, stage.arguments)
    assert now() == before


@pytest.mark.parametrize("act", OVER_HTTP, ids=lambda act: act.__name__)
def test_who_gives_a_token_the_right_to_it_may_do_it_himself(act: AnyAct) -> None:
    right, *_place = PLACES[NOUNS[act]].right
    assert act.permission.removeprefix("ems.") in PERMISSIONS[right]


@each
def test_the_log_says_who_has_done_it(act: AnyAct, caplog: pytest.LogCaptureFixture) -> None:
    stage = STAGES[act]
    row = stage.make()
    caplog.set_level(logging.INFO, "streams.operate")
    act.of(stage.arguments).carry_out(row, "default", Consent("ann"))
    (record,) = [one for one in caplog.records if getattr(one, "ems_event", "") == "act.done"]
    assert (vars(record)["ems_act"], vars(record)["ems_by"]) == (act.name, "ann")
    assert "ann" in record.getMessage()


@each
def test_its_words_are_there(act: AnyAct) -> None:
    assert str(act.label)
    assert str(act.text).endswith(".")
    assert all(one.help for one in arguments(act))
    assert act.permission.count(".") == 1
