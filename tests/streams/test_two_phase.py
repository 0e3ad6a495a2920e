"""Prepared messages: what may be prepared, what is idempotent, what a check and a person do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction

from streams import (
    Decision,
    Prepared,
    PreparedMessage,
    checkback,
    consumer,
    prepare,
    prepared,
    send,
)
from streams.api import Outgoing
from streams.errors import (
    AlreadyDecided,
    InvalidConsumer,
    InvalidMessage,
    InvalidName,
    MessageTooLarge,
    NotSerializable,
    PreparedConflict,
    StreamsError,
    TopicDenied,
    UnknownChecker,
    UnknownPartition,
    UnknownPrepared,
    UnknownTopic,
    WrongDatabase,
)
from streams.log.topics import forget
from streams.models import (
    IMMEDIATE,
    Access,
    Message,
    Partition,
    PreparedRow,
    PreparedState,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.retain.old_rows import prepared_messages
from streams.runtime_settings import forget as forget_settings
from streams.testing import advance, drain, sent
from streams.testing import checkback as check
from streams.two_phase import checking, forward
from streams.two_phase.content import checked_content
from streams.two_phase.decide import commit, roll_back
from streams.two_phase.forward import forward as forward_one
from streams.two_phase.prepare import keep_joined
from tests.preparing import CHECKER, answering, endpoint, held, pass_time, row, sent_keys

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry", "asked")]

UNKNOWN, COMMIT, ROLLBACK = Decision.UNKNOWN, Decision.COMMIT, Decision.ROLLBACK
DAY = timedelta(days=1)


@pytest.fixture
def asked(clean_registry: None) -> list[PreparedMessage]:
    return answering(UNKNOWN)


def configured(**values: Any) -> None:
    for name, value in values.items():
        SystemConfig.objects.update_or_create(name=name, defaults={"value": value})
    forget_settings()


def nested(levels: int) -> Any:
    """Return lists in lists, with a number in the innermost one."""
    value: Any = 1
    for _level in range(levels):
        value = [value]
    return value


# -- prepare --


def test_a_prepared_message_is_no_message_until_it_is_committed() -> None:
    got: list[Any] = []
    consumer("orders", group="mail")(got.append)
    one = held("A7", {"number": 7}, key="k", tag="new", headers={"x": "y"})
    assert one == Prepared("shop", "A7", "orders", "prepared", None, True)
    assert drain().done == 0
    done = one.commit()
    assert (done.state, done.created) == ("committed", False)
    assert drain().done == 1
    (message,) = got
    assert done.message_id == message.message_id
    assert (message.body, message.key, message.tag) == ({"number": 7}, "k", "new")
    assert message.headers == {"x": "y", "ems-biz": "shop", "ems-biz-key": "A7"}
    assert row().state == PreparedState.SENT
    assert bytes(row().body) == b""
    assert row().decided_by.startswith("caller:")


def test_a_rolled_back_message_is_never_sent_and_its_body_is_kept() -> None:
    assert held("A7", "text").rollback().state == "rolled back"
    assert not Message.objects.exists()
    assert bytes(row().body) == b"text"
    assert audit("default") == []


def test_the_message_has_the_producer_that_prepared_it() -> None:
    held().commit()
    assert Message.objects.get().producer == row().producer


def test_a_block_commits_at_its_end_and_leaves_an_error_to_the_check() -> None:
    with held("A7"):
        assert row("A7").state == PreparedState.PREPARED
    assert row("A7").state == PreparedState.SENT
    with pytest.raises(ZeroDivisionError), held("A8"):
        _ = 1 / 0
    assert row("A8").state == PreparedState.PREPARED
    assert row("A8").next_at is not None


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"biz": ""}, InvalidName),
        ({"biz": "a b"}, InvalidName),
        ({"biz": "x" * 65}, InvalidName),
        ({"biz_key": " "}, InvalidName),
        ({"biz_key": "x" * 256}, InvalidName),
        ({"biz_key": None}, InvalidName),
        ({"topic": "a b"}, InvalidName),
        ({"topic": "closed"}, TopicDenied),
        ({"body": {1, 2}}, NotSerializable),
        ({"body": b"x" * 5_000_000}, MessageTooLarge),
        ({"headers": {"a": 1}}, InvalidMessage),
        ({"headers": [1]}, InvalidMessage),
        ({"partition": 3}, UnknownPartition),
        ({"context": {1, 2}}, InvalidMessage),
        ({"context": "x" * 2000}, MessageTooLarge),
        ({"context": nested(31)}, InvalidMessage),
        ({"context": {"a": "\ud800"}}, InvalidMessage),
        ({"context": {"\ud800": 1}}, InvalidMessage),
        ({"context": [10**309]}, InvalidMessage),
        ({"check_after": -1}, InvalidMessage),
        ({"check_after": True}, InvalidMessage),
        ({"check_after": float("nan")}, InvalidMessage),
        ({"check_after": 2 * DAY}, InvalidMessage),
        ({"checker": "nobody"}, UnknownChecker),
        ({"checker": None}, UnknownChecker),
        ({"checker": "https://example.com/check"}, UnknownChecker),
    ],
    ids=repr,
)
def test_what_is_wrong_is_an_error_before_anything_is_written(
    wrong: dict[str, Any], error: type[StreamsError]
) -> None:
    Topic.objects.create(name="orders")
    Topic.objects.create(name="closed", access=Access.DENIED)
    with pytest.raises(error):
        held(**wrong)
    assert not PreparedRow.objects.exists()
    assert Topic.objects.count() == 2


@pytest.mark.mysql
def test_each_server_keeps_the_deepest_context_and_the_largest_number() -> None:
    context = [nested(29), -(10**308) + 1, "\U0001f600"]
    held(context=context)
    kept = row().context
    assert kept is not None
    assert kept[0] == nested(29)


def test_an_error_that_is_not_about_the_key_is_raised() -> None:
    """A CHECK of the table is an IntegrityError, too."""
    message = Outgoing("orders", 1)
    content = checked_content(message, biz="shop", biz_key=1, checker=CHECKER, using="default")
    broken = replace(content, columns={**content.columns, "size": None})
    with pytest.raises(IntegrityError):
        keep_joined(broken, "p", "default")


def test_a_topic_that_may_not_be_created_is_unknown() -> None:
    configured(autoCreateTopic=False)
    with pytest.raises(UnknownTopic):
        held()
    assert not PreparedRow.objects.exists()


def test_names_of_numbers_are_their_texts() -> None:
    prepare("orders", 1, biz=17, biz_key=4, checker=CHECKER)
    assert prepared("17", "4").biz_key == "4"
    assert prepared(17, 4).commit().state == "committed"


def test_the_same_prepare_again_is_the_same_and_other_content_is_a_conflict() -> None:
    answering(UNKNOWN, name="shop.other")
    held("A7", {"n": 1}, headers={"a": "1", "b": "2"}, key=3)
    again = held("A7", {"n": 1}, headers={"b": "2", "a": "1"}, key="3")
    assert (again.created, again.state) == (False, "prepared")
    for other in (
        {"body": {"n": 2}},
        {"body": {"n": 1}, "tag": "x"},
        {"body": {"n": 1}, "topic": "others"},
        {"body": {"n": 1}, "partition": 0},
        {"body": {"n": 1}, "context": "another"},
        {"body": {"n": 1}, "checker": "shop.other"},
    ):
        with pytest.raises(PreparedConflict, match="shop:A7"):
            held(**{"headers": {"a": "1", "b": "2"}, "key": 3, **other})
    assert PreparedRow.objects.count() == 1


# SHA-256 of the content below, as rows have it that were prepared before this release.
EARLIER_DIGEST = "afbe12f08527e23f53d90a47349ee7ee2ee6fbc46a7b6247b475ea99b7950ab2"


def test_what_an_earlier_version_has_prepared_is_the_same_when_it_is_prepared_again() -> None:
    held("A7", {"n": 1}, headers={"a": "1"}, key=3, context={"c": [1]}, check_after=30)
    assert bytes(row().digest).hex() == EARLIER_DIGEST


@pytest.mark.mysql
@pytest.mark.parametrize(
    "context",
    [
        *(10**300, -(10**308) + 1, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 1.0, 1e22, 0.1 + 0.2),
        *(5e-324, 1.7976931348623157e308, -0.0, 123456789.12345679, "\U0001f600\0", True),
        *((1, (2,)), {"b": {"y": 1, "x": None}, "a": 2, "aa": []}, {1: "a"}, None),
    ],
    ids=repr,
)
def test_a_repeated_prepare_has_the_context_that_a_server_keeps(context: Any) -> None:
    held(context=context)
    assert held(context=context, check_after=30).created is False


@pytest.mark.parametrize("other", [1, [], {"a": 1.0}, {"a": True}, {"a": 1, "b": None}, None])
def test_another_context_is_a_conflict(other: Any) -> None:
    held(context={"a": 1})
    with pytest.raises(PreparedConflict):
        held(context=other)


# -- what is idempotent --

BEFORE = {
    "PREPARED": lambda: held(),
    "committed": lambda: held().commit(),
    "ROLLED_BACK": lambda: held().rollback(),
    "MANUAL": lambda: manual(),
}


def manual() -> Prepared:
    one = held()
    PreparedRow.objects.update(state=PreparedState.MANUAL, next_at=None)
    return one


@pytest.mark.parametrize("before", BEFORE)
def test_a_repeated_prepare_changes_nothing(before: str) -> None:
    BEFORE[before]()
    state = row().state
    if before == "ROLLED_BACK":  # who went on would work for a message that is never sent
        with pytest.raises(AlreadyDecided, match="rolled back already, by caller:"):
            held()
    else:
        assert held().created is False
    assert row().state == state
    with pytest.raises(PreparedConflict):
        held("A7", "other")


@pytest.mark.parametrize("before", BEFORE)
def test_a_commit(before: str) -> None:
    BEFORE[before]()
    if before == "ROLLED_BACK":
        with pytest.raises(AlreadyDecided, match="rolled back already, by caller:"):
            prepared("shop", "A7").commit()
        assert sent_keys() == []
        return
    for _ in range(3):
        done = prepared("shop", "A7").commit()
        assert done.state == "committed"
        assert done.message_id == Message.objects.get().pk
    assert sent_keys() == ["A7"]


@pytest.mark.parametrize("before", BEFORE)
def test_a_rollback(before: str) -> None:
    BEFORE[before]()
    if before == "committed":
        with pytest.raises(AlreadyDecided, match="committed already, by caller:"):
            prepared("shop", "A7").rollback()
        assert sent_keys() == ["A7"]
        return
    for _ in range(3):
        assert prepared("shop", "A7").rollback().state == "rolled back"
    assert sent_keys() == []


def test_what_nobody_has_prepared_is_unknown() -> None:
    with pytest.raises(UnknownPrepared):
        prepared("shop", "A7")
    one = held()
    PreparedRow.objects.all().delete()
    with pytest.raises(UnknownPrepared, match="prepare it again"):
        one.commit()
    with pytest.raises(UnknownPrepared):
        one.rollback()


def test_a_commit_in_a_transaction_that_is_rolled_back_has_not_happened() -> None:
    one = held()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        one.commit()
        assert sent_keys() == ["A7"]
        _ = 1 / 0
    assert sent_keys() == []
    assert row().state == PreparedState.PREPARED
    assert one.commit().state == "committed"


def test_a_row_that_was_changed_behind_the_lock_is_not_written() -> None:
    """A guard for a database that gives two the lock, as after a failover: all or nothing."""
    from streams.two_phase.decide import send_locked
    from streams.two_phase.row import Changed, lock

    one = held()
    assert one.row_id is not None
    with transaction.atomic():
        seen = lock(one.row_id, "shop", "A7", "default")
    assert seen is not None
    PreparedRow.objects.update(state=PreparedState.ROLLED_BACK)
    with pytest.raises(Changed), transaction.atomic():
        send_locked(seen, "caller:x", "default")
    assert row().state == PreparedState.ROLLED_BACK
    assert sent_keys() == []


# -- the order --


def test_an_effect_has_a_higher_offset_than_its_cause() -> None:
    """P is prepared, M is sent, P is committed because of M."""
    one = held("P")
    send("orders", "M")
    drain_nothing()
    one.commit()
    consumer("orders", group="mail")(lambda message: None)
    drain()
    offsets = dict(Message.objects.values_list("body_type", "offset"))
    assert offsets == {"text": 0, "json": 1}


def test_a_prepared_row_in_the_inbox_would_come_before_its_cause() -> None:
    """The other form: why prepared messages have a table (docs/decisions/0008-two-phase.md)."""
    for due_at in (IMMEDIATE, UtcNow()):
        first = send("other", "P").message_id
        Message.objects.filter(pk=first).update(due_at=None)
        second = send("other", "M").message_id
        Message.objects.filter(pk=first).update(due_at=due_at)  # because of M
        drain_nothing()
        offsets = dict(Message.objects.values_list("pk", "offset"))
        assert offsets[first] < offsets[second]  # type: ignore[operator]


def drain_nothing() -> None:
    from streams.log.sequencer import sequence

    sequence("default")


# -- checks --


def test_the_schedule_is_a_minute_more_each_time_and_then_a_person(
    asked: list[PreparedMessage],
) -> None:
    held("A7", {"n": 1}, context={"c": 1})
    assert check().checks == 0
    for number in range(1, 16):
        pass_time(number * 0.89)
        if number > 1:  # ± 10 %; the first one is exact
            assert check().checks == 0
        pass_time(number * 0.22)
        result = check()
        assert (result.checks, result.unknown) == (1, 1)
        assert result.manual == (number == 15)
        assert asked[-1].checks == number
    assert (asked[0].biz, asked[0].biz_key, asked[0].topic) == ("shop", "A7", "orders")
    assert (asked[0].body, asked[0].context) == ({"n": 1}, {"c": 1})
    assert row().state == PreparedState.MANUAL
    assert row().next_at is None
    advance(DAY)
    assert check().checks == 0
    assert audit("default") == []


def test_a_message_may_say_when_it_is_checked_first(asked: list[PreparedMessage]) -> None:
    held(check_after=0)
    assert check().unknown == 1


@pytest.mark.parametrize(
    ("answer", "state", "keys"),
    [(COMMIT, PreparedState.SENT, ["A7"]), (ROLLBACK, PreparedState.ROLLED_BACK, [])],
)
def test_an_answer_decides(
    clean_registry: None, answer: Decision, state: str, keys: list[str]
) -> None:
    answering(UNKNOWN, answer, name="one")
    held(checker="one")
    pass_time(1)
    assert check().unknown == 1
    assert row().last_answer == "unknown"
    pass_time(3)
    check()
    assert row().state == state
    assert row().decided_by == "check:one"
    assert row().last_answer == answer.value
    assert sent_keys() == keys


@pytest.mark.parametrize("wrong", [ValueError("broken"), None, "commit", True], ids=repr)
def test_what_is_no_answer_is_unknown_with_its_reason(wrong: Any) -> None:
    answering(wrong, name="one")
    held(checker="one")
    pass_time(1)
    assert check().failed == 1
    assert row().state == PreparedState.PREPARED
    assert row().last_answer == "error"
    assert "broken" in row().last_error or "not a Decision" in row().last_error
    assert row().checks == 1


def test_a_late_caller_may_still_decide_what_waits_for_a_person() -> None:
    one = held()
    PreparedRow.objects.update(checks=14)
    pass_time(1)
    assert check().manual == 1
    assert prepared("shop", "A7").state == "manual"
    assert one.commit().state == "committed"


def test_what_is_older_than_a_day_is_for_a_person(asked: list[PreparedMessage]) -> None:
    held()
    PreparedRow.objects.update(checker="of-no-process")
    pass_time(23 * 60)
    assert check().manual == 0
    pass_time(61)
    assert check().manual == 1
    assert asked == []


def test_nobody_gets_a_message_that_is_just_due(asked: list[PreparedMessage]) -> None:
    """A process that does not know the function may come first."""
    held(check_after=DAY)
    PreparedRow.objects.update(checker="of-another-process")
    pass_time(24 * 60 + 1)
    assert check().manual == 0
    PreparedRow.objects.update(checker=CHECKER)
    assert check().checks == 1
    assert len(asked) == 1


def test_what_is_older_than_a_day_and_still_unknown_is_for_a_person(
    asked: list[PreparedMessage],
) -> None:
    configured(verifyStepSeconds=6 * 3600)
    held()
    for _check in range(4):
        pass_time(13.3 * 60)
        check()
    assert row().state == PreparedState.MANUAL
    assert row().checks == 2
    assert len(asked) == 2


def test_checkers_take_turns(clean_registry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backlog of one leaves time for the other."""
    order: list[str] = []
    for name in ("one", "two"):

        def answer(message: PreparedMessage) -> Decision:
            order.append(message.biz_key[0])
            return COMMIT

        checkback(name)(answer)
    for number in range(3):
        for name in ("one", "two"):
            held(f"{name[0]}{number}", checker=name)
    pass_time(1)
    monkeypatch.setattr(checking, "OF_FUNCTION", 1)
    assert check().committed == 6
    assert {*order[:2]} == {*order[2:4]} == {"o", "t"}


def test_a_checker_that_becomes_due_in_a_round_waits_for_no_backlog(clean_registry: None) -> None:
    """Also one that has had its turn in this round, after a while."""
    order: list[str] = []

    def busy(message: PreparedMessage) -> Decision:
        order.append("busy")
        if len(order) == 1:
            PreparedRow.objects.filter(checker="late").update(next_at=UtcNow())
        return COMMIT

    def late(message: PreparedMessage) -> Decision:
        order.append("late")
        return COMMIT

    checkback("busy")(busy)
    checkback("late")(late)
    for number in range(50):
        held(f"A{number}", checker="busy")
    pass_time(1)
    held("B", checker="late")
    assert check().committed == 51
    assert order.index("late") <= checking.OF_FUNCTION


def test_an_endpoint_needs_no_bodies(clean_registry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint("http://127.0.0.1:1/", name="far")
    held(checker="far")
    pass_time(1)
    deferred: list[Any] = []

    def ask(endpoint: Any, row: PreparedRow, *args: Any) -> Decision:
        deferred.append(row.get_deferred_fields())
        return COMMIT

    monkeypatch.setattr("streams.two_phase.asking.ask_endpoint", ask)
    assert check().committed == 1
    assert deferred == [{"body"}]


def test_what_waits_for_its_topic_is_sent_though_a_check_fails(
    clean_registry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is due, in rounds, of all checkers."""
    monkeypatch.setattr(forward, "BATCH", 2)
    for number in range(5):
        held(f"A{number}").commit()
    Message.objects.all().delete()
    PreparedRow.objects.update(
        state=PreparedState.COMMITTED, next_at=UtcNow(), body=b"{}", message_id=None
    )
    held("B1")
    pass_time(1)

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(checking, "claim", broken)
    with pytest.raises(RuntimeError):
        check()
    assert PreparedRow.objects.filter(state=PreparedState.SENT).count() == 5


def test_what_is_claimed_and_not_asked_about_is_given_back(
    asked: list[PreparedMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        held(f"A{number}")
    pass_time(1)

    def broken(*args: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(checking, "_write", broken)
    with pytest.raises(RuntimeError):
        check()
    assert sorted(PreparedRow.objects.values_list("checks", flat=True)) == [0, 0, 1]


def test_a_message_whose_checker_died_after_the_last_claim_is_for_a_person() -> None:
    held()
    PreparedRow.objects.update(checks=15)
    pass_time(1)
    result = check()
    assert (result.checks, result.manual) == (0, 1)


def test_only_the_messages_of_one_business_are_checked_if_asked(
    asked: list[PreparedMessage],
) -> None:
    held("A7")
    held("A8", biz="bank")
    pass_time(1)
    assert check("bank").unknown == 1
    assert [one.biz for one in asked] == ["bank"]
    assert row("A7").checks == 0


@pytest.mark.every_database
def test_a_check_that_rolled_back_too_early_is_loud(
    clean_registry: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The check ran while the transaction of the work was open, and found nothing."""
    answering(ROLLBACK, name="hasty")
    one = held("A7", "text", checker="hasty")
    pass_time(1)
    assert check().rolled_back == 1
    with pytest.raises(AlreadyDecided, match="check:hasty"):
        one.commit()
    assert row().is_disputed
    assert bytes(row().body) == b"text"
    assert [r.ems_event for r in caplog.records if r.levelname == "ERROR"] == [  # type: ignore[attr-defined]
        "prepared.disputed"
    ]


def disputed() -> Prepared:
    one = held("A7", "text", checker="hasty")
    pass_time(1)
    check()
    with pytest.raises(AlreadyDecided):
        one.commit()
    assert PreparedRow.objects.disputed().count() == 1
    return one


@pytest.mark.parametrize("ends", ["sent anyway", "rolled back"])
def test_a_person_ends_a_dispute_for_good(
    clean_registry: None, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    """The caller repeats its commit, as one does whose replies are lost."""
    from streams.two_phase.operator import send_anyway

    answering(ROLLBACK, name="hasty")
    one = disputed()
    if ends == "sent anyway":
        assert send_anyway(row(), "operator:ann", "default")
    else:
        roll_back("shop", "A7", by="operator:ann", using="default")
        assert row().decided_by == "operator:ann"
    assert not PreparedRow.objects.disputed().exists()
    caplog.clear()
    with pytest.raises(AlreadyDecided):
        one.commit()
    assert not PreparedRow.objects.disputed().exists()
    assert [r for r in caplog.records if r.levelname == "ERROR"] == []
    assert len(sent("orders")) == (ends == "sent anyway")


def test_a_rollback_of_the_caller_ends_no_dispute(clean_registry: None) -> None:
    answering(ROLLBACK, name="hasty")
    disputed().rollback()
    assert row().is_disputed
    assert row().decided_by == "check:hasty"


@pytest.mark.parametrize("by", ["operator:ann", "check:hasty"])
def test_only_a_caller_disputes(clean_registry: None, by: str) -> None:
    answering(ROLLBACK, name="hasty")
    held("A7", "text", checker="hasty")
    pass_time(1)
    assert check().rolled_back == 1
    with pytest.raises(AlreadyDecided):
        commit("shop", "A7", by=by, using="default")
    assert not row().is_disputed


@pytest.mark.django_db(databases=["default", "other"])
def test_a_transaction_on_another_alias_is_told_so_inside_a_test_case_too() -> None:
    one = held()
    with transaction.atomic(using="other"), pytest.raises(WrongDatabase):
        one.commit()
    with transaction.atomic(using="other"), transaction.atomic():
        assert one.commit().state == "committed"


@pytest.mark.parametrize(
    "wrong", [lambda: 1, type("C", (), {}), 3, lambda a, b: a], ids=["none", "class", "int", "two"]
)
def test_a_check_back_is_a_function_of_one_argument(wrong: Any) -> None:
    with pytest.raises(InvalidConsumer):
        checkback("x")(wrong)


def test_a_check_back_is_neither_async_nor_twice_there() -> None:
    async def later(message: PreparedMessage) -> Decision:
        return UNKNOWN

    with pytest.raises(InvalidConsumer, match="async"):
        checkback("x")(later)  # type: ignore[type-var]
    with pytest.raises(InvalidConsumer, match="already"):
        answering(COMMIT)
    with pytest.raises(InvalidName):
        checkback("a b")


# -- a topic that refuses --


def denied(name: str = "orders") -> None:
    Topic.objects.filter(name=name).update(access=Access.DENIED)
    forget()


def test_a_commit_whose_topic_refuses_is_sent_when_it_may() -> None:
    one = held()
    denied()
    done = one.commit()
    assert (done.state, done.message_id) == ("committed", None)
    assert row().state == PreparedState.COMMITTED
    assert "TopicDenied" in row().last_error
    pass_time(1)
    assert check().forwarded == 0  # two steps
    Topic.objects.update(access=Access.READ_WRITE)
    forget()
    pass_time(1.3)
    assert check().forwarded == 1
    assert row().state == PreparedState.SENT
    assert row().decided_by.startswith("caller:")
    assert sent_keys() == ["A7"]


@pytest.mark.every_database
def test_a_commit_is_given_up_after_its_tries_and_a_person_sends_it_again() -> None:
    from streams.two_phase.operator import send_again

    configured(sendMaxTimes=3)
    one = held()
    denied()
    one.commit()
    for minutes in (2.3, 3.4):
        pass_time(minutes)
        assert check().forwarded == 0
    assert (row().state, row().sends, row().next_at) == (PreparedState.UNSENT, 3, None)
    assert prepared("shop", "A7").state == "committed"
    with pytest.raises(AlreadyDecided):
        one.rollback()
    assert audit("default") == []
    Topic.objects.update(access=Access.READ_WRITE)
    forget()
    assert send_again(row(), "default")
    assert sent_keys() == ["A7"]
    assert not send_again(row(), "default")


def test_what_another_process_has_tried_since_it_was_listed_spends_no_try() -> None:
    one = held()
    denied()
    one.commit()
    pass_time(2.3)
    listed = row()
    assert check().forwarded == 0
    assert row().sends == 2
    assert not forward_one(listed, "default")
    assert row().sends == 2


def test_a_limit_that_was_lowered_meanwhile_lets_it_wait() -> None:
    one = held("A7", "x" * 1000)
    configured(msgMaxSizeInBytes=500)
    one.commit()
    assert row().state == PreparedState.COMMITTED
    assert "msgMaxSizeInBytes" in row().last_error


@pytest.mark.every_database
def test_a_deleted_topic_is_made_again_as_by_a_send() -> None:
    one = held()
    Partition.objects.all().delete()
    Topic.objects.all().delete()
    forget()
    assert one.commit().state == "committed"
    assert [m.body for m in sent("orders")] == [{"number": "A7"}]


# -- what people do --


def test_sending_anyway_sends_what_was_rolled_back_once() -> None:
    from streams.two_phase.operator import send_anyway

    held("A7", "text").rollback()
    assert send_anyway(row(), "operator:ann", "default")
    assert [m.body for m in sent("orders")] == ["text"]
    assert not send_anyway(row(), "operator:ann", "default")
    assert row().state == PreparedState.ROLLED_BACK
    assert Message.objects.count() == 1


def test_a_check_now_does_not_wait_and_gives_what_is_manual_another_chance(
    asked: list[PreparedMessage],
) -> None:
    from streams.two_phase.operator import check_now

    manual()
    assert check_now(row(), "default")
    result = check()
    assert (result.unknown, result.manual) == (1, 1)
    held().rollback()
    assert not check_now(row(), "default")


# -- the purge --


@pytest.mark.every_database
def test_decided_ones_are_purged_after_a_week_and_then_the_key_is_new() -> None:
    held("A1").commit()
    held("A2").rollback()
    held("A3")
    held("A4")
    PreparedRow.objects.filter(biz_key="A4").update(state=PreparedState.MANUAL)
    held("A5").rollback()
    PreparedRow.objects.filter(biz_key="A5").update(disputed_at=row("A5").decided_at)
    before = row("A1").decided_at
    assert before is not None
    PreparedRow.objects.exclude(decided_at=None).update(decided_at=before - timedelta(days=8))
    assert sum(prepared_messages("default")) == 2
    keys = set(PreparedRow.objects.values_list("biz_key", flat=True))
    assert keys == {"A3", "A4", "A5"}
    assert held("A1", "other content").created


@pytest.mark.django_db(transaction=True)
def test_a_decision_that_meets_a_lock_is_tried_again_and_the_round_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(Decision.COMMIT, name="shop.paid")
    for number in range(2):
        held(f"A{number}", checker="shop.paid")
    pass_time(1)
    real, tries = commit, []

    def locked(*args: Any, waits: bool, **more: Any) -> PreparedRow:
        tries.append(waits)
        if len(tries) == 1:
            raise OperationalError(1205, "Lock wait timeout exceeded")
        return real(*args, waits=waits, **more)

    monkeypatch.setattr("streams.two_phase.checking.commit", locked)
    assert check().committed == 2
    assert tries == [False, True, False]
