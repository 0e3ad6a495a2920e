"""What a token may change, that a preview is what is done, and that each thing is done once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from streams import Outgoing, Reject, consumer, send, send_many
from streams.database.clock import database_now
from streams.log.sequencer import sequence
from streams.models import (
    Access,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Partition,
    Redrive,
    RetryMessage,
    Topic,
)
from streams.operate import topic_deletion
from streams.operate.topics import create, grow
from streams.testing import drain
from tests.http.conftest import Api, MakeToken
from tests.sessions import Threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


@pytest.fixture
def boss(api: Api, make_token: MakeToken) -> Api:
    """Return a client that may do everything, of a token that a user has made."""
    user = User.objects.create(username="ada")
    api.token = make_token("manage", "read", "dead", "dead!", name="ops", owner=str(user.pk))
    return api


def entries() -> list[str]:
    return [one.change_message for one in LogEntry.objects.order_by("pk")]


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


def with_group(messages: int = 10, name: str = "mail") -> ConsumerGroup:
    """Return a group that has done so many messages."""
    consumer("orders", group=name)(lambda message: None)
    send_many([Outgoing("orders", n) for n in range(messages)])
    drain()
    return ConsumerGroup.objects.get(name=name)


def with_letters(count: int) -> list[int]:
    """Return the ids of so many dead letters of the group mail."""

    @consumer("orders", group="mail", batch=10)
    def mail(messages: Any) -> Any:
        return {message: Reject("odd") for message in messages}

    send_many([Outgoing("orders", n) for n in range(count)])
    drain()
    return sorted(DeadMessage.objects.values_list("pk", flat=True))


# -- topics --


def test_a_topic_is_created_changed_and_grown(boss: Api, make_token: MakeToken) -> None:
    answer = boss.post("/topics", {"name": "orders", "partitions": 2})
    assert answer.status_code == 201, answer.content
    assert [one["partition"] for one in answer.json()["partitions"]] == [0, 1]
    assert code(boss.post("/topics", {"name": "orders"})) == (409, "topic_exists")
    assert code(boss.post("/topics", {"name": "a b"})) == (422, "invalid_name")
    answer = boss.patch("/topics/orders", {"retention_seconds": 60, "access": "read-only"})
    assert (answer.json()["retention_seconds"], answer.json()["access"]) == (60, "read-only")
    answer = boss.patch("/topics/orders", {"retention_seconds": None})
    assert answer.json()["retention_seconds"] is None
    assert boss.patch("/topics/orders", {"name": "x"}).status_code == 422
    assert code(boss.patch("/topics/orders", {"retention_count": 0})) == (422, "invalid_value")
    assert code(boss.patch("/topics/orders", {"access": None})) == (422, "invalid_value")
    grown = boss.post("/topics/orders/grow", {"partitions": 3}).json()
    assert (grown["partitions"], grown["new"], grown["done"]) == (3, 1, False)
    assert code(boss.post("/topics/orders/grow", {"partitions": 1})) == (422, "invalid_partitions")
    assert code(boss.patch("/topics/none", {"access": "denied"})) == (404, "unknown_topic")
    reader = make_token("read", "manage:mails")
    assert boss.post("/topics", {"name": "orders2"}, token=reader).status_code == 403
    assert boss.patch("/topics/orders", {"access": "denied"}, token=reader).status_code == 403
    assert Topic.objects.get().access == "read-only"


def test_what_a_token_changes_is_in_the_log_of_the_user_who_made_it(boss: Api) -> None:
    boss.post("/topics", {"name": "orders"})
    boss.patch("/topics/orders", {"access": "read-only"})
    boss.patch("/topics/orders", {"access": "read-only"})  # nothing is changed
    prefix = (boss.token or "")[4:12]
    assert entries() == [
        f"API token ops ({prefix}): created with 1 partitions",
        f"API token ops ({prefix}): access: read-write → read-only",
    ]
    assert {one.user.get_username() for one in LogEntry.objects.all()} == {"ada"}
    User.objects.all().delete()
    boss.patch("/topics/orders", {"access": "denied"})
    assert entries() == []


def test_what_a_token_of_the_command_changes_is_in_the_log(
    api: Api, make_token: MakeToken, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.token = make_token("manage", "dead!", name="ops")
    api.post("/topics", {"name": "orders"})
    ids = with_letters(2)
    api.post("/dead/discard", previewed(api, **OF_GROUP))
    records = [one for one in caplog.records if getattr(one, "ems_event", "") == "api.changed"]
    prefix = api.token[4:12]
    assert [one.getMessage() for one in records] == [
        f"orders: API token ops ({prefix}): created with 1 partitions",
        f"{ids[0]}, {ids[1]}: API token ops ({prefix}): 2 discarded",
    ]
    assert {(vars(one)["ems_token"], vars(one)["ems_by"]) for one in records} == {(prefix, "tests")}
    assert entries() == []


def test_a_topic_is_deleted_in_two_requests(boss: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with_group(3)
    assert code(boss.delete("/topics/orders")) == (409, "topic_in_use")
    shown = boss.delete("/topics/orders?dry_run=true").json()
    assert "not retired" in shown["obstacles"][0]
    assert (shown["rows"]["ems_msg"], shown["rows"]["ems_group"]) == (3, 1)
    boss.patch("/topics/orders", {"access": "read-only"})
    answer = boss.delete("/topics/orders")
    assert (answer.status_code, answer.json()["retry_after"]) == (202, 11)
    token = answer.json()["token"]
    early = boss.delete(f"/topics/orders?token={token}")
    assert early.status_code == 202
    assert Topic.objects.exists()
    assert code(boss.delete(f"/topics/orders?force=true&token={token}")) == (409, "preview_expired")
    monkeypatch.setattr("streams.http.routes.deletion.SETTLED_SECONDS", -1)
    answer = boss.delete(f"/topics/orders?token={token}")
    assert (answer.status_code, answer.json()["deleted"]) == (200, True)
    assert not Topic.objects.exists()
    assert boss.get("/topics/orders").status_code == 404


def test_a_deletion_whose_answer_was_lost_is_answered_again(
    boss: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.http.routes.deletion.SETTLED_SECONDS", -1)
    create("old", 1, "default")
    boss.patch("/topics/old", {"access": "read-only"})
    path = f"/topics/old?token={boss.delete('/topics/old').json()['token']}"
    answers = [boss.delete(path) for _ in range(2)]
    assert [(one.status_code, one.json()["deleted"]) for one in answers] == [(200, True)] * 2
    assert code(boss.delete("/topics/old")) == (404, "unknown_topic")
    create("old", 1, "default")
    assert code(boss.delete(path)) == (409, "topic_in_use")  # another topic of this name
    assert Topic.objects.exists()


def test_a_forced_deletion_that_is_repeated_leaves_another_topic_of_its_name(
    boss: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.http.routes.deletion.SETTLED_SECONDS", -1)
    create("old", 1, "default")
    token = boss.delete("/topics/old?force=true").json()["token"]
    path = f"/topics/old?force=true&token={token}"
    assert boss.delete(path).json()["deleted"]  # an answer that is lost
    create("old", 1, "default")
    assert code(boss.delete(path)) == (409, "topic_in_use")
    assert Topic.objects.get().access == Access.READ_WRITE


def test_a_topic_that_was_opened_again_is_closed_anew(
    boss: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("old", 1, "default")
    boss.patch("/topics/old", {"access": "read-only"})
    token = boss.delete("/topics/old").json()["token"]
    boss.patch("/topics/old", {"access": "read-write"})
    assert code(boss.delete(f"/topics/old?token={token}")) == (409, "topic_in_use")
    boss.patch("/topics/old", {"access": "read-only"})
    later = database_now("default") + timedelta(seconds=60)
    with monkeypatch.context() as patch:
        patch.setattr("streams.http.routes.deletion.database_now", lambda using: later)
        answer = boss.delete(f"/topics/old?token={token}")
    assert (answer.status_code, answer.json()["retry_after"]) == (202, 11)
    assert Topic.objects.exists()


def test_a_long_deletion_goes_on_with_the_next_request(
    boss: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_group(3)
    monkeypatch.setattr("streams.http.routes.deletion.SETTLED_SECONDS", -1)
    monkeypatch.setattr("streams.http.routes.deletion.DELETE_SECONDS", -1.0)
    token = boss.delete("/topics/orders?force=true").json()["token"]
    answer = boss.delete(f"/topics/orders?force=true&token={token}")
    assert (answer.status_code, answer.json()["deleted"]) == (202, False)
    monkeypatch.setattr("streams.http.routes.deletion.DELETE_SECONDS", 5.0)
    token = answer.json()["token"]
    assert boss.delete(f"/topics/orders?force=true&token={token}").status_code == 200
    assert not Topic.objects.exists()
    assert topic_deletion.SETTLED_SECONDS > 0


# -- groups --


def test_a_group_is_paused_and_resumed(boss: Api, make_token: MakeToken) -> None:
    with_group(0)
    assert boss.post("/topics/orders/groups/mail/pause", {}).json()["paused"] is True
    assert ConsumerGroup.objects.get().paused
    assert boss.post("/topics/orders/groups/mail/pause").json()["changed"] is False
    assert boss.post("/topics/orders/groups/mail/resume").json()["paused"] is False
    assert [text.rpartition(" ")[2] for text in entries()] == ["paused", "resumed"]
    other = make_token("manage:mails", "read")
    assert boss.post("/topics/orders/groups/mail/pause", token=other).status_code == 403


def test_overrides_of_a_group_are_set_and_removed(boss: Api) -> None:
    with_group(0)
    path = "/topics/orders/groups/mail"
    answer = boss.patch(path, {"max_retries": 3, "retry_policy": "10s, 1m"})
    given = answer.json()["overrides"]
    assert (given["max_retries"], given["retry_policy"], given["batch"]) == (3, "10s, 1m", None)
    given = boss.patch(path, {"max_retries": None, "retry_policy": None}).json()["overrides"]
    assert (given["max_retries"], given["retry_policy"]) == (None, "")
    assert code(boss.patch(path, {"batch": 0})) == (422, "invalid_value")
    assert code(boss.patch(path, {"retry_policy": "soon"}))[0] == 422


def test_a_reset_does_what_its_preview_has_shown_and_once(boss: Api) -> None:
    group = with_group(10)
    path = "/topics/orders/groups/mail/reset"
    shown = boss.post(path, {"to": "-4"}).json()
    assert (shown["done"], shown["moves"][0]["target"], shown["moves"][0]["again"]) == (False, 6, 4)
    assert Cursor.objects.get().next_offset == 10
    drained(2)  # the group goes on: the target is still the one that was shown
    done = boss.post(path, {"token": shown["token"]}).json()
    assert (done["done"], done["moves"][0]["target"], done["moves"][0]["again"]) == (True, 6, 6)
    assert Cursor.objects.get().next_offset == 6
    assert code(boss.post(path, {"token": shown["token"]})) == (409, "preview_stale")
    assert entries()[-1].endswith("reset: orders/0 from 12 to 6, 6 delivered again")
    path = "/topics/orders/groups/mail/undo"
    undo = boss.post(path).json()
    assert undo["moves"][0]["target"] == 12
    boss.post(path, {"token": undo["token"]})
    assert Cursor.objects.get().next_offset == 12
    assert code(boss.post(path, {"token": undo["token"]})) == (409, "preview_stale")
    assert group.pk == ConsumerGroup.objects.get().pk


def drained(count: int) -> None:
    send_many([Outgoing("orders", n) for n in range(count)])
    drain()


def test_a_preview_is_of_use_to_its_token_and_for_ten_minutes(
    boss: Api, make_token: MakeToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_group(3)
    with_group(0, "stock")
    path = "/topics/orders/groups/mail/reset"
    token = boss.post(path, {"to": "earliest"}).json()["token"]
    other = make_token("manage")
    assert code(boss.post(path, {"token": token}, token=other)) == (409, "preview_expired")
    elsewhere = "/topics/orders/groups/stock/reset"
    assert code(boss.post(elsewhere, {"token": token})) == (409, "preview_expired")
    monkeypatch.setattr("streams.http.offers.VALID_SECONDS", -1)
    assert code(boss.post(path, {"token": token})) == (409, "preview_expired")
    assert Cursor.objects.filter(next_offset=3).count() == 2
    for wrong in ({}, {"to": "latest", "undo": True}, {"to": "nowhere"}, {"to": "99"}):
        assert boss.post(path, wrong).status_code in (409, 422), wrong
    assert code(boss.post("/topics/orders/groups/mail/undo")) == (409, "nothing_to_undo")


def test_a_reset_is_refused_while_the_group_has_consumers(boss: Api) -> None:
    from streams.models import Consumer, UtcNow

    group = with_group(3)
    lease = UtcNow(timedelta(minutes=1))
    Consumer.objects.create(client_id="c", group=group, lease_until=lease)
    path = "/topics/orders/groups/mail/reset"
    shown = boss.post(path, {"to": "earliest"}).json()
    assert shown["consumers"] == 1
    assert code(boss.post(path, {"token": shown["token"]})) == (409, "group_active")
    forced = boss.post(path, {"token": shown["token"], "force": True})
    assert forced.json()["done"] is True


def test_a_replay_is_begun_and_cancelled(boss: Api) -> None:
    with_group(10)
    path = "/topics/orders/groups/mail"
    shown = boss.post(f"{path}/replay", {"from": "2", "to": "5"}).json()
    assert (shown["number"], shown["messages"], shown["done"]) == (1, 3, False)
    begun = boss.post(f"{path}/replay", {"token": shown["token"]}).json()
    assert (begun["number"], begun["done"]) == (1, True)
    shown = boss.post(f"{path}/cancel-replay", {"number": 1}).json()
    assert (shown["number"], shown["left_out"]) == (1, 3)
    boss.post(f"{path}/cancel-replay", {"token": shown["token"]})
    assert code(boss.post(f"{path}/cancel-replay", {"number": 1})) == (404, "unknown_replay")
    assert code(boss.post(f"{path}/replay", {"message": "999"})) == (409, "offset_out_of_range")
    for wrong in (
        {"from": "2"},
        {"from": "2", "to": "5", "message": "1"},
        {"from": "-1", "to": "5"},
        {"message": 1},
    ):
        assert boss.post(f"{path}/replay", wrong).status_code == 422, wrong


def test_a_group_is_deleted_unless_it_takes_too_long(
    boss: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_group(10)
    path = "/topics/orders/groups/mail/delete"
    with monkeypatch.context() as patched:
        patched.setattr("streams.operate.acts.delete.AT_MOST", 0)
        assert code(boss.post(path)) == (409, "too_long")
    shown = boss.post(path).json()
    assert shown["contents"]["cursors"] == 1
    boss.post(path, {"token": shown["token"]})
    assert code(boss.post(path)) == (404, "unknown_group")


# -- dead letters --


def test_dead_letters_are_listed_and_shown(boss: Api, make_token: MakeToken) -> None:
    ids = with_letters(5)
    path = "/topics/orders/groups/mail/dead"
    page = boss.get(f"{path}?limit=3").json()
    assert [one["id"] for one in page["items"]] == ids[:3]
    assert "body" not in page["items"][0]
    rest = boss.get(f"{path}?limit=3&after={page['next']}").json()
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (ids[3:], None)
    kind = "streams.errors.Reject"
    assert len(boss.get(f"{path}?error_class={kind}&limit=5").json()["items"]) == 5
    assert boss.get(f"{path}?error_class=Other").json() == {"items": [], "next": None}
    shown = boss.get(f"/dead/{ids[0]}").json()
    assert (shown["has_body"], shown["body"], shown["error_class"]) == (False, None, kind)
    assert boss.get(f"/dead/{ids[0]}", token=make_token("dead", "body")).json()["body"] == 0
    other = make_token("dead:orders/stock", "dead:mails/*")
    assert boss.get(path, token=other).status_code == 403
    assert code(boss.get(f"/dead/{ids[0]}", token=other)) == (404, "unknown")


def test_dead_letters_are_redriven_once(boss: Api, make_token: MakeToken) -> None:
    ids = with_letters(5)
    tried = boss.post("/dead/redrive", {"ids": ids[:2], "dry_run": True}).json()
    assert (tried["found"], tried["done"]) == (2, 0)
    other = make_token("dead:mails/*")
    assert boss.post("/dead/redrive", {"ids": ids}, token=other).json()["found"] == 0
    assert not RetryMessage.objects.exists()
    done = boss.post("/dead/redrive", {"ids": [*ids[:2], 10**9]}).json()
    assert (done["done"], done["left_out"]) == (2, 1)
    assert boss.post("/dead/redrive", {"ids": ids[:2]}).json()["done"] == 0
    rest = {"topic": "orders", "group": "mail", "limit": 2}
    done = boss.post("/dead/redrive", rest).json()
    assert (done["done"], done["after"]) == (2, ids[3])
    done = boss.post("/dead/redrive", {**rest, "after": done["after"]}).json()
    assert (done["done"], done["after"]) == (1, None)
    assert RetryMessage.objects.count() == 5
    of = {"topic": "orders", "group": "stock"}
    assert boss.post("/dead/redrive", of, token=other).status_code == 403
    assert boss.post("/dead/redrive", {"topic": "orders"}).status_code == 422
    assert boss.post("/dead/redrive", {}).status_code == 422


def test_dead_letters_are_redriven_at_a_rate(boss: Api, make_token: MakeToken) -> None:
    with_letters(3)
    wanted = {"topic": "orders", "group": "mail", "rate": 5.0}
    answer = boss.post("/dead/redrive", wanted)
    assert answer.status_code == 202, answer.content
    number = answer.json()["redrive"]
    assert Redrive.objects.get().who == f"token:{(boss.token or '')[4:12]}"
    drained(1)  # another one died: the redrive is the same
    again = boss.post("/dead/redrive", wanted)
    assert (*code(again), again.json()["redrive"]) == (409, "redrive_running", number)
    (shown,) = boss.get("/dead/redrives").json()["items"]
    assert (shown["redrive"], shown["state"], shown["rate"]) == (number, "running", 5.0)
    path = f"/dead/redrives/{number}"
    other = make_token("dead:mails/*")
    assert boss.post(f"{path}/stop", token=other).status_code == 404
    assert boss.get("/dead/redrives", token=other).json()["items"] == []
    stopped = {"state": "stopped", "changed": True, "done": True}
    assert boss.post(f"{path}/stop").json() == stopped


def test_a_redrive_at_a_rate_leaves_out_what_the_request_leaves_out(boss: Api) -> None:
    ids = with_letters(4)
    boss.post("/dead/redrive", {**OF_GROUP, "after": ids[1], "rate": 5.0})
    row = Redrive.objects.get()
    assert (row.after, row.upto) == (ids[1], ids[3])
    for nothing in ({"ids": [10**9]}, {**OF_GROUP, "after": ids[3]}):
        answer = boss.post("/dead/redrive", {**nothing, "rate": 0.01})
        assert (answer.status_code, answer.json()["redrive"]) == (200, None)
    assert Redrive.objects.count() == 1


def test_a_redrive_of_a_deleted_group_is_for_who_may_redrive_all(
    boss: Api, make_token: MakeToken
) -> None:
    with_letters(1)
    boss.post("/dead/redrive", {**OF_GROUP, "rate": 5.0})
    Redrive.objects.update(groups=[10**9])  # as after the deletion of the group
    mine = make_token("dead:orders/*")
    assert boss.get("/dead/redrives", token=mine).json()["items"] == []
    assert len(boss.get("/dead/redrives").json()["items"]) == 1


def previewed(boss: Api, **wanted: Any) -> dict[str, Any]:
    """Return the request that discards what a dry run has found."""
    answer = boss.post("/dead/discard", {**wanted, "dry_run": True})
    assert answer.status_code == 200, answer.content
    return {"token": answer.json()["token"]}


def test_dead_letters_are_discarded_only_as_they_were_shown(
    boss: Api, make_token: MakeToken
) -> None:
    ids = with_letters(4)
    for wrong in (OF_GROUP, {**OF_GROUP, "token": "x"}, {"dry_run": True}, {}):
        assert boss.post("/dead/discard", wrong).status_code == 422, wrong
    shown = boss.post("/dead/discard", {**OF_GROUP, "dry_run": True}).json()
    real = {"token": shown["token"]}
    assert (shown["found"], shown["done"]) == (4, 0)
    assert code(boss.post("/dead/discard", {"token": "x"})) == (409, "preview_expired")
    only_redrive, other = make_token("dead"), make_token("dead!")
    assert boss.post("/dead/discard", real, token=only_redrive).status_code == 403
    assert code(boss.post("/dead/discard", real, token=other)) == (409, "preview_expired")
    first = previewed(boss, ids=ids[:1])
    assert boss.post("/dead/discard", first).json()["done"] == 1
    refused = boss.post("/dead/discard", real)
    assert (*code(refused), refused.json()["count"]) == (409, "count_mismatch", 3)
    assert DeadMessage.objects.count() == 3
    assert boss.post("/dead/discard", previewed(boss, **OF_GROUP)).json()["done"] == 3
    assert not DeadMessage.objects.exists()
    assert entries()[-1].endswith("3 discarded")


def test_a_discard_that_is_repeated_deletes_nothing_more(boss: Api) -> None:
    ids = with_letters(6)
    real = previewed(boss, **OF_GROUP, limit=2)
    assert boss.post("/dead/discard", real).json()["done"] == 2
    assert code(boss.post("/dead/discard", real)) == (409, "count_mismatch")
    assert sorted(DeadMessage.objects.values_list("pk", flat=True)) == ids[2:]


def test_letters_that_died_after_the_preview_are_not_discarded(boss: Api) -> None:
    ids = with_letters(2)
    real = previewed(boss, **OF_GROUP)
    boss.post("/dead/redrive", {"ids": ids})
    drained(2)
    assert DeadMessage.objects.waiting().count() >= 2
    waiting = DeadMessage.objects.waiting().exclude(pk__in=ids).count()
    boss.post("/dead/discard", real)
    assert DeadMessage.objects.waiting().exclude(pk__in=ids).count() == waiting > 0


# -- two requests at once --


@pytest.mark.mysql
def test_of_two_redrives_of_the_same_letters_each_letter_is_redriven_once(
    transactional_db: None, boss: Api, in_thread: Threads
) -> None:
    with_letters(30)
    answers = at_once(in_thread, lambda: boss.post("/dead/redrive", OF_GROUP).json()["done"])
    assert sum(answers) == 30
    assert RetryMessage.objects.count() == 30


@pytest.mark.mysql
def test_of_two_discards_at_once_each_letter_is_discarded_once(
    transactional_db: None, boss: Api, in_thread: Threads
) -> None:
    with_letters(30)
    wanted = previewed(boss, **OF_GROUP)
    answers = at_once(in_thread, lambda: boss.post("/dead/discard", wanted).json().get("done", 0))
    assert sum(answers) == 30


@pytest.mark.mysql
def test_of_two_resets_with_one_token_one_takes_effect(
    transactional_db: None, boss: Api, in_thread: Threads
) -> None:
    with_group(10)
    path = "/topics/orders/groups/mail/reset"
    token = boss.post(path, {"to": "4"}).json()["token"]
    answers = at_once(in_thread, lambda: boss.post(path, {"token": token}).status_code)
    assert sorted(answers) == [200, 409]
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.previous_offset) == (4, 10)


OF_GROUP = {"topic": "orders", "group": "mail"}


def at_once(in_thread: Threads, work: Callable[[], Any]) -> list[Any]:
    """Return what two calls at the same moment have answered."""
    import threading

    together = threading.Barrier(2)

    def call() -> Any:
        together.wait(30)
        return work()

    return [one.result(60) for one in [in_thread(call), in_thread(call)]]


def test_a_partition_that_is_new_since_the_preview_ends_it(boss: Api) -> None:
    with_group(3)
    path = "/topics/orders/groups/mail/reset"
    token = boss.post(path, {"to": "earliest"}).json()["token"]
    grow(Topic.objects.get(), 2, "default")
    assert code(boss.post(path, {"token": token})) == (409, "preview_stale")
    assert Partition.objects.count() == 2


def test_a_topic_is_made_once_by_two_requests(boss: Api) -> None:
    create("orders", 1, "default")
    send("orders", 1)
    sequence("default")
    assert code(boss.post("/topics", {"name": "orders"})) == (409, "topic_exists")


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"token": null}'])
def test_an_act_that_needs_a_field_refuses_a_request_without_any(boss: Api, body: bytes) -> None:
    with_group()
    for path in ("orders/grow", "orders/groups/mail/reset"):
        answer = boss.client.post(
            f"/ems/v1/topics/{path}",
            body,
            content_type="application/json",
            secure=True,
            headers={"Authorization": f"Bearer {boss.token}"},
        )
        assert code(answer) == (422, "invalid")
        assert answer["Content-Type"] == "application/problem+json"


def test_an_act_that_needs_no_field_needs_no_body(boss: Api) -> None:
    with_group()
    answer = boss.client.post(
        "/ems/v1/topics/orders/groups/mail/pause",
        content_type="application/json",
        secure=True,
        headers={"Authorization": f"Bearer {boss.token}"},
    )
    assert answer.status_code == 200
    assert ConsumerGroup.objects.get().paused
