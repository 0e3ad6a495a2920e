"""The failure matrix of prepared messages: sent exactly once or not at all, and never guessed.

With two connections and killed processes. docs/guides/two-phase.md has the same rows.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection, connections, transaction

from streams import Decision, Outgoing, prepared, send, signals
from streams.chaos.forks import in_fork
from streams.errors import (
    AlreadyDecided,
    InvalidMessage,
    UnknownPrepared,
    WrongDatabase,
)
from streams.log.sequencer import sequence
from streams.models import (
    Access,
    Message,
    Partition,
    PreparedRow,
    PreparedState,
    Step,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.models.step import PREPARED
from streams.observe.audit.walk import audit
from streams.operate.topics import create
from streams.runtime_settings import forget as forget_settings
from streams.steps import turns
from streams.steps.prepared import check_prepared_if_due
from streams.testing import checkback as check
from streams.two_phase import checking
from streams.two_phase.checking import check_due
from streams.two_phase.claim import claim
from streams.two_phase.content import checked_content
from streams.two_phase.decide import commit, roll_back
from streams.two_phase.prepare import keep_joined
from tests.concurrency.locks import held_before, wait_until_one_waits
from tests.faults import Guillotine, Severed
from tests.hostapp.models import Order
from tests.preparing import CHECKER, answering, answers, endpoint, held, pass_time, row, sent_keys
from tests.processes import PATIENCE_SECONDS, Spawn, wait_for
from tests.proxy import Proxy
from tests.sessions import Session, Threads

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

KILLED = -signal.SIGKILL
COMMIT, ROLLBACK, UNKNOWN = Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN
Connect = Callable[[], Session]


@pytest.fixture
def by_order(clean_registry: None) -> list[Any]:
    """A check-back that looks for the order, as the guide shows it."""
    from streams import PreparedMessage, checkback

    asked: list[PreparedMessage] = []

    @checkback(CHECKER)
    def order_was_saved(message: PreparedMessage) -> Decision:
        asked.append(message)
        there = Order.objects.filter(number=message.biz_key).exists()
        return COMMIT if there else ROLLBACK

    return asked


@pytest.fixture
def known(clean_registry: None) -> list[Any]:
    return answering(UNKNOWN)


def ended(keys: list[str], state: str) -> None:
    assert sent_keys() == keys
    assert row().state == state
    assert audit("default") == []


# -- the caller dies --


@pytest.mark.mysql
def test_a_caller_that_dies_in_prepare_has_prepared_or_not(by_order: list[Any]) -> None:
    """At every statement, and at every COMMIT: then its check says ROLLBACK."""

    def work(point: int) -> Callable[[], None]:
        def run() -> None:
            Guillotine(point).install()
            held()

        return run

    point, seen = 0, set()
    while True:
        point += 1
        status = in_fork(work(point))
        seen.add(PreparedRow.objects.count())
        pass_time(2)
        check()
        assert sent_keys() == []
        assert not PreparedRow.objects.exclude(state=PreparedState.ROLLED_BACK).exists()
        PreparedRow.objects.all().delete()
        if status == 0:
            break
        assert status == KILLED
    assert point > 1
    assert seen == {0, 1}


@pytest.mark.mysql
@pytest.mark.parametrize("dies", ["before its work", "after its work", "never"])
def test_a_caller_that_dies_around_its_work(by_order: list[Any], dies: str) -> None:
    def work() -> None:
        one = held()
        if dies == "before its work":
            signal.raise_signal(signal.SIGKILL)
        Order.objects.create(number="A7")
        if dies == "after its work":
            signal.raise_signal(signal.SIGKILL)
        one.commit()

    assert in_fork(work) == (0 if dies == "never" else KILLED)
    pass_time(1)
    check()
    if dies == "before its work":
        ended([], PreparedState.ROLLED_BACK)
    else:
        ended(["A7"], PreparedState.SENT)
    assert len(by_order) == (dies != "never")


@pytest.mark.mysql
def test_a_caller_that_dies_anywhere_in_commit(by_order: list[Any]) -> None:
    """All of a commit has happened or nothing of it; the check says COMMIT then."""
    point = 0
    while True:
        point += 1
        held(f"A{point}")
        Order.objects.create(number=f"A{point}")

        def work(number: int = point) -> None:
            Guillotine(number).install()
            prepared("shop", f"A{number}").commit()

        status = in_fork(work)
        one = row(f"A{point}")
        assert (one.state == PreparedState.SENT) == (f"A{point}" in sent_keys())
        pass_time(1)
        check()
        assert sent_keys() == [f"A{n}" for n in range(1, point + 1)]
        if status == 0:
            break
        assert status == KILLED
    assert point > 4


# -- replies that are lost --


@pytest.mark.mysql
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", ["prepare", "commit", "rollback"])
def test_a_connection_lost_at_any_statement_is_repeated_without_harm(
    known: list[Any], second_connection: Connect, verb: str, done: bool
) -> None:
    session = second_connection()
    held("first").rollback()  # reads the topic and the settings, so that the INSERT comes first
    created: list[bool] = []
    for point in range(1, 20):
        key = f"{verb}{point}"
        one = None if verb == "prepare" else held(key)
        with Severed(point, session, done=done) as severed:
            one = held(key) if one is None else getattr(one, verb)()
        assert one is not None
        created.append(one.created)
        assert (
            row(key).state
            == {
                "prepare": PreparedState.PREPARED,
                "commit": PreparedState.SENT,
                "rollback": PreparedState.ROLLED_BACK,
            }[verb]
        )
        assert sent_keys().count(key) == (verb == "commit")
        if not severed.fired:
            break
    assert point > (1 if verb == "prepare" else 3)
    if verb == "prepare":  # its INSERT was done and not answered: called again, it finds itself
        assert (False in created) == done, created


@pytest.mark.mysql
def test_the_reply_of_a_commit_is_lost_and_it_is_called_again(
    known: list[Any], proxied: Proxy
) -> None:
    one = held()
    proxied.lose_reply_to(b"COMMIT")
    assert one.commit().state == "committed"
    assert one.commit().message_id == Message.objects.get().pk
    ended(["A7"], PreparedState.SENT)


@pytest.mark.mysql
def test_the_reply_of_what_was_sent_anyway_is_lost(known: list[Any], proxied: Proxy) -> None:
    from streams.two_phase.operator import send_anyway

    held().rollback()
    dropped = row()
    proxied.lose_reply_to(b"COMMIT")
    assert send_anyway(dropped, "operator:ann", "default")
    assert not send_anyway(dropped, "operator:ann", "default")
    assert sent_keys() == ["A7"]


# -- statements --


@pytest.mark.mysql
def test_prepare_and_commit_are_six_statements(known: list[Any], proxied: Proxy) -> None:
    """INSERT; BEGIN, SELECT … FOR UPDATE, INSERT, UPDATE, COMMIT: no look before, none after."""
    one = held("A1").commit()  # reads the topic and the settings
    counts = []
    for verb in ("prepare", "commit", "commit", "prepare"):
        before = len(proxied.statements)
        one = held("A2") if verb == "prepare" else one.commit()
        counts.append(len(proxied.statements) - before)
    # Again: BEGIN, SELECT … FOR UPDATE, COMMIT; and an INSERT that fails, and a look.
    assert counts == [1, 5, 3, 2]
    before = len(proxied.statements)
    held("A3").rollback()
    assert len(proxied.statements) - before == 1 + 4
    assert sent_keys() == ["A1", "A2"]


@pytest.mark.mysql
def test_a_check_that_commits_is_five_statements_of_its_own(
    clean_registry: None, proxied: Proxy
) -> None:
    """Those of a commit; what a round costs is shared by its messages."""
    answering(COMMIT)
    counts = []
    for round_, size in enumerate((1, 1, 11)):  # the first one warms up
        for number in range(size):
            held(f"{round_}-{number}")
        pass_time(1)
        before = len(proxied.statements)
        assert check_due("default").committed == size
        counts.append(len(proxied.statements) - before)
    assert counts[2] - counts[1] == 10 * 5


# -- several at once --


@pytest.mark.mysql
@pytest.mark.parametrize("second", ["commit", "rollback", "check"])
def test_who_comes_second_waits_and_sees_the_decision(
    clean_registry: None, in_thread: Threads, second: str
) -> None:
    answering(COMMIT)
    held()
    pass_time(1)

    def other() -> Any:
        if second == "check":
            return check_due("default").committed
        try:
            return getattr(prepared("shop", "A7"), second)().state
        except AlreadyDecided:
            return "too late"

    # The first one has the row, and has not inserted yet.
    first = lambda: prepared("shop", "A7").commit().state  # noqa: E731
    with held_before(in_thread, "INSERT INTO `ems_msg`", first) as committing:
        waiting = in_thread(other)
        if second == "check":  # what somebody decides about is not claimed
            assert waiting.result(PATIENCE_SECONDS) == 0
        else:
            wait_until_one_waits(str(connection.settings_dict["NAME"]))
    assert committing.result(PATIENCE_SECONDS) == "committed"
    expected = {"commit": "committed", "rollback": "too late", "check": 0}[second]
    assert waiting.result(PATIENCE_SECONDS) == expected
    ended(["A7"], PreparedState.SENT)


@pytest.mark.mysql
def test_twelve_at_once_send_one_message(known: list[Any], in_thread: Threads) -> None:
    """Six commit and six roll back: all agree on who was first."""
    for number in range(10):
        key = f"A{number}"
        held(key)

        def decide(n: int, key: str = key) -> str:
            try:
                if n % 2:
                    return commit("shop", key, by=f"caller:{n}", using="default").state
                return roll_back("shop", key, by=f"caller:{n}", using="default").state
            except AlreadyDecided:
                return "too late"

        found = [one.result(PATIENCE_SECONDS) for one in [in_thread(decide, n) for n in range(12)]]
        state = row(key).state
        assert sorted(found) == sorted([state] * 6 + ["too late"] * 6)
        assert sent_keys().count(key) == (state == PreparedState.SENT)
    assert audit("default") == []


@pytest.mark.mysql
def test_two_checkers_get_different_messages(known: list[Any], second_connection: Connect) -> None:
    for number in range(6):
        held(f"A{number}")
    pass_time(1)
    other = second_connection()
    with transaction.atomic():
        mine, _over = claim(CHECKER, 3, "default")
        with other.active():
            theirs, _over = claim(CHECKER, 100, "default")
    assert len(mine) == len(theirs) == 3
    assert {one.pk for one in mine}.isdisjoint(one.pk for one in theirs)


@pytest.mark.mysql
def test_commits_and_prepares_of_others_wait_for_nobody(
    known: list[Any], second_connection: Connect
) -> None:
    """A commit in a long transaction locks its own row, also where it finds none."""
    held("A1")
    held("A3")
    other = second_connection()
    other.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with transaction.atomic():
        prepared("shop", "A1").commit()
        with pytest.raises(UnknownPrepared):
            commit("shop", "A2", by="caller:x", using="default")
        with other.active():
            held("A2")
            prepared("shop", "A3").commit()
            send("orders", 1)
    assert sorted(sent_keys()) == ["A1", "A3"]


@pytest.mark.parametrize("found", ["another's", "nothing"])
def test_a_commit_by_an_id_of_others_finds_its_message_by_the_key(
    known: list[Any], found: str
) -> None:
    """A failover may lose a prepare, and its id is given again."""
    lost, stranger = held("A7"), held("A8")
    PreparedRow.objects.filter(biz_key="A7").delete()
    assert stranger.row_id is not None
    pk = stranger.row_id if found == "another's" else stranger.row_id + 1000
    for verb in ("commit", "rollback"):
        with pytest.raises(UnknownPrepared, match="shop:A7"):
            getattr(replace(lost, row_id=pk), verb)()
    assert row("A8").state == PreparedState.PREPARED
    held("A7")
    assert replace(lost, row_id=pk).commit().state == "committed"
    assert sent_keys() == ["A7"]
    assert row("A8").state == PreparedState.PREPARED


@pytest.mark.mysql
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_commit_in_an_old_snapshot_sees_what_was_prepared_since(
    known: list[Any],
    second_connection: Connect,
    isolation_level: Callable[[str], None],
    level: str,
) -> None:
    isolation_level(level)
    Order.objects.create(number="x")
    other = second_connection()
    with transaction.atomic():
        assert Order.objects.count() == 1  # from here on it sees the past
        with other.active():
            held("A7")
        commit("shop", "A7", by="caller:x", using="default")
    ended(["A7"], PreparedState.SENT)


@pytest.mark.mysql
@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_a_dispute_is_noted_though_the_callers_snapshot_is_older(
    clean_registry: None,
    second_connection: Connect,
    isolation_level: Callable[[str], None],
    ends: str,
) -> None:
    """The transaction of the caller has locked the row when it sees the rollback."""
    answering(ROLLBACK)
    one = held()
    pass_time(1)
    isolation_level("repeatable read")
    other = second_connection()
    told: list[Any] = []
    receiver = lambda **kwargs: told.append(kwargs["biz_key"])  # noqa: E731
    signals.prepared_disputed.connect(receiver)
    try:
        with transaction.atomic():
            assert row().state == PreparedState.PREPARED  # from here on it sees the past
            with other.active():
                assert check_due("default").rolled_back == 1
            with pytest.raises(AlreadyDecided):
                one.commit()
            assert told == ["A7"]
            transaction.set_rollback(ends == "rolls back")
    finally:
        signals.prepared_disputed.disconnect(receiver)
    wait_for(lambda: row().is_disputed)
    assert sent_keys() == []


# -- transactions of the caller --


@pytest.mark.mysql
def test_prepare_is_committed_though_the_transaction_of_its_caller_is_rolled_back(
    known: list[Any],
) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Order.objects.create(number="A7")
        assert held().created
        assert not held().created
        _ = 1 / 0
    assert row().state == PreparedState.PREPARED


@pytest.mark.mysql
def test_a_prepare_does_not_wait_for_a_decision_about_its_key(
    known: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction of its own caller has the row: it would wait for itself."""
    one = held()
    init = "SET SESSION innodb_lock_wait_timeout = 1"
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "init_command", init)
    with transaction.atomic():
        one.commit()
        again = held()
    assert (again.created, again.state) == (False, "prepared")
    ended(["A7"], PreparedState.SENT)


@pytest.mark.mysql
@pytest.mark.parametrize("holds", ["commit", "rollback"])
def test_a_prepare_waits_for_no_transaction_that_decides_about_its_key(
    known: list[Any], second_connection: Connect, holds: str
) -> None:
    """It inserts without a look: the row is locked by its id, not by its key."""
    one = held()
    other = second_connection()
    other.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with transaction.atomic():
        getattr(one, holds)()
        with other.active():
            again = held()
            assert held("A6").created  # the gaps beside it are free, too
            assert held("A8").created
    assert (again.created, again.state) == (False, "prepared")


@pytest.mark.mysql
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_a_repeated_prepare_in_a_transaction_locks_no_gap(
    known: list[Any],
    second_connection: Connect,
    isolation_level: Callable[[str], None],
    level: str,
) -> None:
    """As of a call through a topic: an INSERT that fails would hold the gap until its end."""
    isolation_level(level)
    held("A7")
    content = checked_content(
        Outgoing("orders", {"number": "A7"}),
        biz="shop",
        biz_key="A7",
        checker=CHECKER,
        using="default",
    )
    other = second_connection()
    other.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with transaction.atomic():
        assert not Order.objects.exists()  # begins it: what has not begun has no locks to keep
        assert not keep_joined(content, "p", "default").created
        with other.active():
            assert held("A6").created
            assert held("A70").created


def test_on_sqlite_prepare_in_a_transaction_is_refused(known: list[Any], vendor: str) -> None:
    if vendor != "sqlite":
        return
    with transaction.atomic(), pytest.raises(InvalidMessage, match="before the transaction"):
        held()


def test_a_commit_that_is_rolled_back_with_its_caller_is_checked(by_order: list[Any]) -> None:
    one = held()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Order.objects.create(number="A7")
        one.commit()
        _ = 1 / 0
    assert row().state == PreparedState.PREPARED
    pass_time(1)
    assert check().rolled_back == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_transaction_on_another_alias_is_told_what_to_do(known: list[Any]) -> None:
    one = held()
    with transaction.atomic(using="other"):
        for verb in (one.commit, one.rollback):
            with pytest.raises(WrongDatabase, match=r"on_commit\(held\.\w+, using='other'\)"):
                verb()
        transaction.on_commit(one.commit, using="other")
        assert row().state == PreparedState.PREPARED
    ended(["A7"], PreparedState.SENT)


# -- checkers that die --

CHECKING = """
import os, signal, sys
from streams import Decision, checkback
from streams.steps import turns
from streams.two_phase import checking
from tests.preparing import CHECKER

@checkback(CHECKER)
def answer(message):
    if sys.argv[1] == "while asking":
        os.kill(os.getpid(), signal.SIGKILL)
    return Decision.COMMIT

if sys.argv[1] == "after claiming":
    checking._answer = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "before writing":
    checking._write = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
checking.check_due("default")
"""


@pytest.mark.parametrize("dies", ["after claiming", "while asking", "before writing"])
def test_a_checker_that_is_killed_has_spent_one_check(
    spawn: Spawn, clean_registry: None, dies: str
) -> None:
    answering(COMMIT)
    held()
    pass_time(1)
    assert spawn(CHECKING, dies).wait() == KILLED
    assert (row().state, row().checks) == (PreparedState.PREPARED, 1)
    assert check().checks == 0
    pass_time(2.3)
    assert check().committed == 1
    assert row().checks == 2
    ended(["A7"], PreparedState.SENT)


def test_a_consumer_checks_what_is_due(spawn: Spawn, clean_registry: None) -> None:
    answering(UNKNOWN)
    held(check_after=0)
    code = """
from django.core.management import call_command
from streams import Decision, checkback, consumer
from tests.preparing import CHECKER

checkback(CHECKER)(lambda message: Decision.COMMIT)
consumer("orders", group="mail")(lambda message: print("handled", message.body))
call_command("ems_consume")
"""
    child = spawn(code)
    child.expect("handled {'number': 'A7'}")
    child.terminate()
    child.succeed()
    ended(["A7"], PreparedState.SENT)


def test_one_process_checks_at_a_time_and_the_sweep_does_not_wait(clean_registry: None) -> None:
    import threading

    entered, go_on = threading.Event(), threading.Event()

    def slow(message: Any) -> Decision:
        entered.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return COMMIT

    from streams import checkback

    checkback(CHECKER)(slow)
    held(check_after=0)
    thread = check_prepared_if_due("default")
    try:
        assert thread is not None
        assert entered.wait(PATIENCE_SECONDS)
        turns._ask_at.clear()
        Step.objects.filter(name=PREPARED).update(last_run_at=UtcNow(timedelta(hours=-1)))
        assert check_prepared_if_due("default") is None
    finally:
        go_on.set()
    thread.join(PATIENCE_SECONDS)
    ended(["A7"], PreparedState.SENT)


@pytest.mark.mysql
@pytest.mark.parametrize("answer", [COMMIT, UNKNOWN], ids=str)
def test_a_check_waits_shortly_for_the_transaction_of_a_caller(
    clean_registry: None,
    second_connection: Connect,
    monkeypatch: pytest.MonkeyPatch,
    answer: Decision,
) -> None:
    """The caller decides while its message is asked about; the others have their checks."""
    from streams import checkback

    monkeypatch.setattr(checking, "LOCK_SECONDS", 1)
    monkeypatch.setattr(checking, "LOCK_PATIENCE", 0.0)
    other = second_connection()
    asked: list[str] = []

    def decide(message: Any) -> Decision:
        if not asked:
            other.execute("BEGIN")
            only = f"biz = 'shop' AND biz_key = '{message.biz_key}'"
            other.execute(f"SELECT 1 FROM ems_prepared WHERE {only} FOR UPDATE")
        asked.append(message.biz_key)
        return answer

    checkback(CHECKER)(decide)
    for number in range(3):
        held(f"A{number}")
    pass_time(1)
    begun = time.monotonic()
    result = check_due("default")
    assert time.monotonic() - begun < PATIENCE_SECONDS
    assert len(asked) == 3
    assert (result.committed if answer is COMMIT else result.unknown) >= 2
    other.execute("ROLLBACK")
    assert row(asked[0]).state == PreparedState.PREPARED


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_function_that_breaks_a_connection_harms_only_its_check(clean_registry: None) -> None:
    """Also one of another alias: nothing else closes it in the thread of the checks."""
    from streams import checkback

    def answer(message: Any) -> Decision:
        with connections["other"].cursor() as cursor:
            cursor.execute("KILL CONNECTION_ID()" if message.biz_key == "A0" else "SELECT 1")
        return COMMIT

    checkback(CHECKER)(answer)
    for number in range(3):
        held(f"A{number}")
        pass_time(1)
    result = check_due("default")
    assert (result.committed, result.failed) == (2, 1)


def test_nothing_is_decided_where_no_process_knows_the_function(known: list[Any]) -> None:
    held()
    PreparedRow.objects.update(checker="of-another-project")
    pass_time(10)
    assert check().checks == 0
    assert (row().state, row().checks) == (PreparedState.PREPARED, 0)


# -- endpoints --


def due_at_endpoint(url: str, **more: Any) -> Any:
    found = endpoint(url, **more)
    held()
    pass_time(1)
    return found


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"decision": "commit"}, PreparedState.SENT),
        ({"decision": "rollback"}, PreparedState.ROLLED_BACK),
        ({"decision": "unknown"}, PreparedState.PREPARED),
    ],
    ids=["commit", "rollback", "unknown"],
)
def test_an_endpoint_decides(clean_registry: None, answer: Any, state: str) -> None:
    from streams.outgoing import signature

    with answers() as server:
        server.say(answer)
        found = endpoint(server.url, secret="s3cret")
        held("A/7", {"n": 1}, context={"c": [1]})
        pass_time(1)
        assert check().checks == 1
        ((method, path, headers, body),) = server.asked
    one = row("A/7")
    assert one.state == state
    assert (method, path) == ("POST", "/check")
    asked = json.loads(body)
    assert asked.pop("prepared_at").endswith("Z")
    assert asked == {
        "biz": "shop",
        "biz_key": "A/7",
        "topic": "orders",
        "check": 1,
        "context": {"c": [1]},
    }
    assert headers["Ems-Id"] == f"{one.pk}-1"
    at = int(headers["Ems-Signature"].partition(",")[0].removeprefix("t="))
    assert headers["Ems-Signature"] == signature(found.secret, at, body)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        ({"messageStatus": 1}, PreparedState.PREPARED),
        ({"messageStatus": "prepare"}, PreparedState.PREPARED),
        ({"messageStatus": 2}, PreparedState.SENT),
        ({"messageStatus": "commit"}, PreparedState.SENT),
        ({"messageStatus": 3}, PreparedState.ROLLED_BACK),
        ({"messageStatus": "rollback"}, PreparedState.ROLLED_BACK),
        ({"messageStatus": 4}, None),
        ({"messageStatus": True}, None),
        ({"messageStatus": [2]}, None),
        ({"messageStatus": 2, "messageKey": "A8"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_an_endpoint_of_trustmessage_is_read(
    clean_registry: None, data: dict[str, Any], state: str | None
) -> None:
    with answers() as server:
        server.say({"status": "0", "message": "", "data": {"messageKey": "A7", **data}})
        due_at_endpoint(server.url + "?x=1", dialect="trustmessage")
        result = check()
        ((method, path, _headers, _body),) = server.asked
    assert (method, path) == ("GET", "/check?x=1&bizID=shop&messageKey=A7")
    assert row().state == (state or PreparedState.PREPARED)
    assert result.failed == (state is None)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_bare_number_is_no_answer(clean_registry: None, number: int) -> None:
    """1 may be "prepare" or "commit": it is never guessed."""
    with answers() as server:
        server.say(number)
        due_at_endpoint(server.url, dialect="trustmessage")
        assert check().failed == 1
    assert row().state == PreparedState.PREPARED


def without_end() -> Iterator[bytes]:
    while True:
        yield b" " * 65536


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"decision": "rollback"}, 404),
        ({"decision": "rollback"}, 403),
        ({"decision": "rollback"}, 302),
        ({"decision": "rollback"}, 500),
        ({"decision": "rollback"}, 503),
        ({"decision": "maybe"}, 200),
        ({"decision": None}, 200),
        (["rollback"], 200),
        (b"rollback", 200),
        (b"", 200),
        (b"[" * 100_000, 200),
        (b'{"decision": "rollback", "x": "' + b"x" * 10_000_000 + b'"}', 200),
        (without_end, 200),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_endpoint_that_lies_is_an_error_and_never_a_rollback(
    clean_registry: None, answer: Any, status: int
) -> None:
    with answers() as server:
        server.say(answer, status, Location="http://127.0.0.1:1/")
        due_at_endpoint(server.url, timeout_seconds=1)
        assert check().failed == 1
    assert (row().state, row().sends) == (PreparedState.PREPARED, 0)
    assert row().checks == 1


def test_an_endpoint_that_is_down_spends_no_checks_and_is_paused(clean_registry: None) -> None:
    found = endpoint("http://127.0.0.1:1/")
    for number in range(20):
        held(f"A{number}")
    pass_time(1)
    result = check()
    assert 5 <= result.failed < 20  # those at once; the others are not asked
    found.refresh_from_db()
    assert found.failures == 5
    assert found.paused_until is not None
    assert set(PreparedRow.objects.values_list("checks", "state")) == {(0, "PREPARED")}
    assert check().failed == 0
    for failures, minutes in ((6, 0.51), (7, 1.01), (8, 2.01), (9, 4.01), (10, 8.01), (11, 10.01)):
        pass_time(minutes - 0.2)
        assert check().failed == 0
        pass_time(0.2)
        assert check().failed == 5  # so many questions tell
        found.refresh_from_db()
        assert found.failures == failures
    with answers() as server:
        server.say({"decision": "commit"})
        type(found).objects.update(url=server.url)
        pass_time(10.01)
        assert check().committed == 20  # at once: it is there again
    found.refresh_from_db()
    assert (found.failures, found.paused_until) == (0, None)
    assert len(sent_keys()) == 20


@pytest.mark.exhaustive
def test_messages_that_are_never_answered_keep_no_other_waiting(clean_registry: None) -> None:
    """Of 200, six are answered with 500 and one never: time passes by the table, not by a clock."""
    bad = [f"A{number}" for number in (0, 1, 2, 3, 4, 70, 71)]
    due = {f"A{number}": max(0, number - 4) * 3.0 for number in range(200)}
    waited: dict[str, float] = {}
    hold = threading.Event()

    def never() -> Iterator[bytes]:
        hold.wait(PATIENCE_SECONDS)
        yield b""

    with answers() as server:
        server.say({"decision": "commit"})
        server.unlike = dict.fromkeys(bad[:-1], (500, b"{}")) | {bad[-1]: (200, never)}
        endpoint(server.url, timeout_seconds=1)
        for key, seconds in due.items():
            held(key, check_after=seconds)
        for now in range(0, 700, 5):
            check()
            for _method, _path, _headers, body in server.asked:
                key = json.loads(body)["biz_key"]
                waited.setdefault(key, now - due[key])
            server.asked.clear()
            pass_time(5 / 60)
        hold.set()
    healthy = {key: seconds for key, seconds in waited.items() if key not in bad}
    assert len(healthy) == 193
    assert max(healthy.values()) <= 60
    states = dict(PreparedRow.objects.values_list("biz_key", "state"))
    assert {key for key, state in states.items() if state != PreparedState.SENT} == {*bad}
    assert all(checks > 1 for checks in _checks_of(bad))


def _checks_of(keys: list[str]) -> list[int]:
    return list(PreparedRow.objects.filter(biz_key__in=keys).values_list("checks", flat=True))


def test_one_message_that_is_never_answered_pauses_no_endpoint(clean_registry: None) -> None:
    with answers() as server:
        server.say({}, 500)
        found = due_at_endpoint(server.url)
        for number in range(6):
            assert check().failed == 1
            assert row().checks == number + 1
            pass_time(20)
    found.refresh_from_db()
    assert (found.failures, found.paused_until) == (1, None)


def test_different_messages_in_a_row_without_an_answer_are_an_outage(clean_registry: None) -> None:
    with answers() as server:
        server.say({}, 503)
        found = endpoint(server.url)
        for number in range(8):
            held(f"A{number}")
        pass_time(1)
        assert check().failed == 8
        found.refresh_from_db()
        assert found.paused_until is not None
        assert {*_checks_of([f"A{number}" for number in range(8)])} == {0}
        server.say({"decision": "commit"})
        pass_time(1)
        assert check().committed == 8


def test_an_answer_waits_for_no_other_message(clean_registry: None) -> None:
    """It is written when it comes, not when all of its round have theirs."""
    hold = threading.Event()

    def late() -> Iterator[bytes]:
        while PreparedRow.objects.filter(state=PreparedState.SENT).count() < 19:
            if hold.wait(0.02):
                break
        yield b'{"decision": "commit"}'
        connections.close_all()

    with answers() as server:
        server.say({"decision": "commit"})
        server.unlike = {"A0": (200, late)}
        endpoint(server.url, timeout_seconds=20)
        for number in range(20):
            held(f"A{number}")
        pass_time(1)
        begun = time.monotonic()
        assert check().committed == 20
        assert time.monotonic() - begun < PATIENCE_SECONDS
        hold.set()


def test_an_endpoint_that_is_down_for_a_day_leaves_it_to_a_person(clean_registry: None) -> None:
    due_at_endpoint("http://127.0.0.1:1/")
    for _ in range(6):
        check()
    pass_time(24 * 60)
    type(endpoint("http://127.0.0.1:1/", name="x")).objects.update(enabled=False)
    assert check().manual == 1
    assert (row().state, row().checks) == (PreparedState.MANUAL, 0)


def test_an_endpoint_on_a_private_address_is_refused_unless_allowed(clean_registry: None) -> None:
    with answers() as server:
        server.say({"decision": "rollback"})
        due_at_endpoint(server.url, allow_private=False)
        assert check().failed == 1
        assert server.asked == []
    assert row().state == PreparedState.PREPARED


# -- the database --


@pytest.mark.mysql
@pytest.mark.parametrize("what", ["denied", "deleted"])
def test_a_topic_that_is_denied_or_deleted_at_commit_delays_the_message(
    known: list[Any], what: str
) -> None:
    from streams.log.topics import forget

    one = held()
    if what == "denied":
        Topic.objects.update(access=Access.DENIED)
    else:
        SystemConfig.objects.create(name="autoCreateTopic", value=False)
        Partition.objects.all().delete()
        Topic.objects.all().delete()
    forget()
    forget_settings()
    with transaction.atomic():  # the transaction of a caller goes on
        assert one.commit().state == "committed"
        Order.objects.create(number="A7")
    assert Order.objects.exists()
    assert row().state == PreparedState.COMMITTED
    if what == "denied":
        Topic.objects.update(access=Access.READ_WRITE)
    else:
        create("orders", 1, "default")
    forget()
    pass_time(3)
    assert check().forwarded == 1
    ended(["A7"], PreparedState.SENT)


def test_a_failover_that_lost_the_prepare_says_so(known: list[Any]) -> None:
    one = held()
    PreparedRow.objects.all().delete()
    with pytest.raises(UnknownPrepared, match="prepare it again"):
        one.commit()
    assert held().created
    assert one.commit().state == "committed"


def test_a_failover_that_lost_the_commit_is_asked_about(by_order: list[Any]) -> None:
    """The new primary has the row as it was before; the caller was told that all is well."""
    one = held()
    before = PreparedRow.objects.values().get()
    Order.objects.create(number="A7")
    one.commit()
    Message.objects.all().delete()
    PreparedRow.objects.update(**before)
    pass_time(1)
    assert check().committed == 1
    ended(["A7"], PreparedState.SENT)


@pytest.mark.parametrize("hours", [-48, 48])
def test_the_clock_of_a_host_decides_nothing(clean_registry: None, hours: int) -> None:
    """What is due, too old and decided is so by the clock of the database; so is a signature."""
    here = time.time()
    with time_machine.travel(timedelta(hours=hours)), answers() as server:
        server.say({"decision": "commit"})
        endpoint(server.url, secret="s3cret")
        one = held()
        assert check().checks == 0
        pass_time(1)
        assert check().committed == 1
        ((_method, _path, headers, _body),) = server.asked
    at = int(headers["Ems-Signature"].partition(",")[0].removeprefix("t="))
    decided = row().decided_at
    assert decided is not None
    assert abs(at - here) < PATIENCE_SECONDS
    assert abs(decided.timestamp() - here) < PATIENCE_SECONDS
    assert one.commit().decided_at == decided


@pytest.mark.mysql
def test_a_truncate_of_the_messages_leaves_prepared_ones_alone(known: list[Any]) -> None:
    """Ids begin again, and a commit cannot hit the message of a stranger."""
    one = held("A7")
    held("A8").commit()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE TABLE ems_msg")
    send("orders", "stranger")
    assert one.commit().state == "committed"
    assert sent_keys_of_all() == [None, "A7"]
    assert prepared("shop", "A8").commit().state == "committed"
    assert sent_keys_of_all() == [None, "A7"]


def sent_keys_of_all() -> list[str | None]:
    rows = Message.objects.order_by("pk").values_list("headers", flat=True)
    return [(headers or {}).get("ems-biz-key") for headers in rows]


# -- the order --


@pytest.mark.timeout(900)
@pytest.mark.parametrize("lives", [5, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_an_effect_follows_its_cause_in_any_interleaving(
    known: list[Any], second_connection: Connect, lives: int
) -> None:
    """P is prepared, M is sent and seen, P is committed because of M.

    Other transactions are open meanwhile, and some decisions are rolled back.
    """
    other = second_connection() if connection.vendor == "mysql" else None
    for seed in range(lives):
        _interleave(random.Random(seed), seed, other)  # noqa: S311
    assert audit("default") == []


def _interleave(chance: random.Random, seed: int, other: Session | None) -> None:
    causes: dict[str, set[int]] = {}
    waiting: list[str] = []
    is_open = False
    before = Message.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    rows = Message.objects.filter(pk__gt=before)
    for move in chance.choices(["prepare", "send", "commit", "sequence", "other"], k=30):
        if move == "prepare":
            key = f"{seed}-{len(waiting) + len(causes)}"
            waiting.append(held(key).biz_key)
        elif move == "send":
            send("orders", seed)
        elif move == "commit" and waiting:
            key = chance.choice(waiting)
            seen = set(rows.values_list("pk", flat=True))
            with transaction.atomic():
                prepared("shop", key).commit()
                is_kept = chance.random() < 0.8
                transaction.set_rollback(not is_kept)
            if is_kept:
                waiting.remove(key)
                causes[key] = seen
        elif move == "other" and other is not None:
            with other.active():
                if is_open:
                    chance.choice([transaction.commit, transaction.rollback])()
                else:
                    transaction.set_autocommit(False)
                    send("orders", -seed)
            is_open = not is_open
        else:
            sequence("default")
    if is_open and other is not None:
        with other.active():
            transaction.commit()
    sequence("default")
    offsets: dict[int, Any] = dict(rows.values_list("pk", "offset"))
    for key, seen in causes.items():
        mine = prepared("shop", key).message_id
        assert mine is not None
        assert all(offsets[mine] > offsets[cause] for cause in seen), seed
    for key in waiting:
        prepared("shop", key).rollback()
