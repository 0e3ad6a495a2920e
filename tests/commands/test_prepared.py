"""ems_prepared: what is prepared, what an operator decides, and who is asked over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import CommandError
from pytest_django import Settings

from streams import Decision
from streams.log.topics import forget
from streams.models import Access, CheckEndpoint, PreparedRow, PreparedState, Topic, UtcNow
from streams.routers import StreamsRouter
from tests.commands.conftest import Run
from tests.preparing import CHECKER, answering, answers, held, row, sent_keys

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


@pytest.fixture(autouse=True)
def known(clean_registry: None) -> list[Any]:
    return answering(Decision.UNKNOWN)


def test_the_list_is_narrowed_by_state_business_and_checker(run: Run) -> None:
    held("A7")
    held("A8").rollback()
    held("A9", biz="bank")
    for options, keys in (
        ((), ["A7", "A8", "A9"]),
        (("--state", "rolled_back"), ["A8"]),
        (("--biz", "bank"), ["A9"]),
        (("--checker", "other"), []),
        (("--limit", "1"), ["A7"]),
    ):
        found = json.loads(run("ems_prepared", "list", "--json", *options))
        assert [one["biz_key"] for one in found] == keys


def test_one_is_shown_with_its_body(run: Run) -> None:
    held("A7", {"n": 1}, context={"c": 1})
    assert '{"n":1}' in run("ems_prepared", "show", "shop", "A7")
    shown = json.loads(run("ems_prepared", "show", "shop", "A7", "--json"))
    assert (shown["context"], shown["body"], shown["state"]) == ({"c": 1}, '{"n":1}', "PREPARED")
    with pytest.raises(CommandError, match="no prepared message shop:A8"):
        run("ems_prepared", "show", "shop", "A8")


@pytest.mark.parametrize(
    ("verb", "state", "keys"),
    [("commit", PreparedState.SENT, ["A7"]), ("rollback", PreparedState.ROLLED_BACK, [])],
)
def test_an_operator_decides(run: Run, verb: str, state: str, keys: list[str]) -> None:
    held()
    run("ems_prepared", verb, "shop", "A7", "--dry-run")
    assert row().state == PreparedState.PREPARED
    with pytest.raises(CommandError, match="--yes"):
        run("ems_prepared", verb, "shop", "A7")
    run("ems_prepared", verb, "shop", "A7", "--yes")
    assert row().state == state
    assert row().decided_by.startswith("operator:")
    assert sent_keys() == keys
    other = "rollback" if verb == "commit" else "commit"
    with pytest.raises(CommandError, match="already"):
        run("ems_prepared", other, "shop", "A7", "--yes")
    assert "nothing to do" in run("ems_prepared", "check", "shop", "A7")


def test_a_check_is_made_at_the_next_step(run: Run) -> None:
    held()
    before = row().next_at
    run("ems_prepared", "check", "shop", "A7")
    assert before is not None
    assert row().next_at < before


def test_what_was_not_sent_is_sent_again(run: Run) -> None:
    held("A7").rollback()
    held("A8")
    with pytest.raises(CommandError, match="neither"):
        run("ems_prepared", "resend", "shop", "A8", "--yes")
    run("ems_prepared", "resend", "shop", "A7", "--yes", "--dry-run")
    assert sent_keys() == []
    run("ems_prepared", "resend", "shop", "A7", "--yes")
    with pytest.raises(CommandError, match="neither"):
        run("ems_prepared", "resend", "shop", "A7", "--yes")
    assert sent_keys() == ["A7"]
    PreparedRow.objects.filter(biz_key="A8").update(state=PreparedState.UNSENT, next_at=None)
    Topic.objects.update(access=Access.DENIED)
    forget()
    assert "TopicDenied" in run("ems_prepared", "resend", "shop", "A8", "--yes")
    PreparedRow.objects.filter(biz_key="A8").update(state=PreparedState.UNSENT, next_at=None)
    Topic.objects.update(access=Access.READ_WRITE)
    forget()
    run("ems_prepared", "resend", "shop", "A8", "--yes")
    assert sent_keys() == ["A7", "A8"]


def test_a_rollback_ends_a_dispute(run: Run) -> None:
    held().rollback()
    PreparedRow.objects.update(decided_by="check:x", disputed_at=UtcNow())
    run("ems_prepared", "rollback", "shop", "A7", "--yes")
    assert not row().is_disputed
    assert row().decided_by.startswith("operator:")


def test_endpoints_are_made_tested_and_removed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_SECRET", "s3cret")
    with answers() as server:
        server.say({"decision": "unknown"})
        with pytest.raises(CommandError, match="http is for private"):
            run("ems_prepared", "endpoint", CHECKER, "--url", server.url)
        made = ("endpoint", CHECKER, "--url", server.url, "--allow-private")
        run("ems_prepared", *made, "--secret", "env:THE_SECRET", "--timeout", "2")
        assert CheckEndpoint.objects.get().secret == "s3cret"
        assert "unknown" in run("ems_prepared", "test", CHECKER)
        server.say({}, 404)
        with pytest.raises(CommandError, match="404"):
            run("ems_prepared", "test", CHECKER)
    run("ems_prepared", "endpoint", CHECKER, "--off")
    assert CheckEndpoint.objects.get().allow_private
    public = ("--url", "https://example.com/check", "--no-private")
    run("ems_prepared", "endpoint", CHECKER, *public)
    assert not CheckEndpoint.objects.get().allow_private
    shown = run("ems_prepared", "endpoints")
    assert "s3cret" not in shown
    assert "/check" not in shown
    assert "no" in shown
    run("ems_prepared", "remove", CHECKER)
    with pytest.raises(CommandError, match="no check endpoint"):
        run("ems_prepared", "remove", CHECKER)


@pytest.mark.django_db(databases=["default", "other"])
def test_endpoints_are_those_of_the_one_database(
    run: Run, ems_settings: Any, settings: Settings
) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    settings.DATABASE_ROUTERS = [StreamsRouter()]
    made = ("endpoint", CHECKER, "--url", "https://example.com/check", "--database", "other")
    run("ems_prepared", *made)
    run("ems_prepared", *made, "--off")
    assert not CheckEndpoint.objects.using("default").get().enabled
    run("ems_prepared", "remove", CHECKER, "--database", "other")
    assert not CheckEndpoint.objects.using("default").exists()
