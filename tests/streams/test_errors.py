"""Every error of a send is raised before anything is written, and says what is wrong."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections, transaction

from streams import (
    Outgoing,
    Reject,
    Retry,
    SendOutcomeUnknown,
    conf,
    errors,
    runtime_settings,
    send,
    send_many,
)
from streams.errors import (
    InvalidMessage,
    InvalidName,
    MessageTooLarge,
    NaiveDatetime,
    NotMigrated,
    NotSerializable,
    StreamsError,
    TopicDenied,
    UnknownTopic,
    WrongDatabase,
)
from streams.models import Access, Message, SystemConfig, Topic
from tests.hostapp.models import Order
from tests.rows import nothing_written, rows

ON_DISK = pytest.mark.django_db(transaction=True)

CIRCULAR: list[object] = []
CIRCULAR.append(CIRCULAR)

DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]

WIDE_LETTER = "𐐀"  # four bytes in UTF-8, the most

BAD_NAMES: dict[str, object] = {
    "empty": "",
    "only blanks": "  ",
    "a blank before": " orders",
    "a blank after": "orders ",
    "a newline after": "orders\n",
    "a no-break space before": "\u00a0orders",
    "a tab inside": "or\tders",
    "a zero byte": "or\0ders",
    "a lone surrogate": "or\ud800ders",
    "a right-to-left override": "or\u202eders",
    "bytes": b"orders",
    "a number": 7,
}

BAD: dict[str, tuple[type[StreamsError], dict[str, Any]]] = {
    **{f"topic: {what}": (InvalidName, {"topic": name}) for what, name in BAD_NAMES.items()},
    **{
        f"key: {what}": (InvalidName, {"key": name})
        for what, name in BAD_NAMES.items()
        if name != 7
    },
    "key: a float": (InvalidName, {"key": 1.5}),
    "key: a bool": (InvalidName, {"key": True}),
    **{f"tag: {what}": (InvalidName, {"tag": name}) for what, name in BAD_NAMES.items() if name},
    "topic: None": (InvalidName, {"topic": None}),
    "tag: None": (InvalidName, {"tag": None}),
    "topic: one too long": (InvalidName, {"topic": "ä" * 128}),
    "key: one too long": (InvalidName, {"key": "ä" * 256}),
    "tag: one too long": (InvalidName, {"tag": "ä" * 65}),
    "body: too large": (MessageTooLarge, {"body": b"x" * 1001}),
    "body: too large as text": (MessageTooLarge, {"body": "ä" * 501}),
    "body: too large as JSON": (MessageTooLarge, {"body": ["x" * 999]}),
    "body: NaN": (NotSerializable, {"body": math.nan}),
    "body: infinity inside": (NotSerializable, {"body": {"a": [math.inf]}}),
    "body: NaN as a key": (NotSerializable, {"body": {math.nan: 1}}),
    "body: a set": (NotSerializable, {"body": {1, 2}}),
    "body: an object": (NotSerializable, {"body": object()}),
    "body: a class": (NotSerializable, {"body": Order}),
    "body: bytes inside JSON": (NotSerializable, {"body": {"raw": b"1"}}),
    "body: a tuple as a key": (NotSerializable, {"body": {(1, 2): 3}}),
    "body: circular": (NotSerializable, {"body": CIRCULAR}),
    "body: nested too deeply": (NotSerializable, {"body": DEEP}),
    "body: a lone surrogate in text": (NotSerializable, {"body": "\ud800"}),
    "body: a lone surrogate in JSON": (NotSerializable, {"body": {"a": "\udfff"}}),
    "deliver_at: naive": (NaiveDatetime, {"deliver_at": datetime(2030, 1, 1)}),  # noqa: DTZ001
    "deliver_at: a string": (InvalidMessage, {"deliver_at": "2030-01-01"}),
    "deliver_at: a date": (InvalidMessage, {"deliver_at": datetime(2030, 1, 1, tzinfo=UTC).date()}),
    "deliver_at: after the end of time": (
        InvalidMessage,
        {"deliver_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))},
    ),
    "deliver_at: and a delay": (
        InvalidMessage,
        {"delay": 1, "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)},
    ),
    "delay: negative": (InvalidMessage, {"delay": -0.001}),
    "delay: a negative timedelta": (InvalidMessage, {"delay": timedelta(days=-1)}),
    "delay: NaN": (InvalidMessage, {"delay": math.nan}),
    "delay: infinite": (InvalidMessage, {"delay": math.inf}),
    "delay: huge": (InvalidMessage, {"delay": 1e300}),
    "delay: a huge int": (InvalidMessage, {"delay": 10**400}),
    "delay: the longest timedelta": (InvalidMessage, {"delay": timedelta.max}),
    "delay: a string": (InvalidMessage, {"delay": "10"}),
    "delay: a bool": (InvalidMessage, {"delay": True}),
    "headers: a list": (InvalidMessage, {"headers": [("a", "b")]}),
    "headers: a string": (InvalidMessage, {"headers": "a"}),
    "headers: a number as value": (InvalidMessage, {"headers": {"a": 1}}),
    "headers: None as value": (InvalidMessage, {"headers": {"a": None}}),
    "headers: a number as name": (InvalidMessage, {"headers": {1: "a"}}),
    "headers: bytes": (InvalidMessage, {"headers": {"a": b"b"}}),
    "headers: a lone surrogate": (InvalidMessage, {"headers": {"a": "\ud800"}}),
}


@pytest.fixture
def limit_of_1000_bytes():
    SystemConfig.objects.create(name="msgMaxSizeInBytes", value=1000)
    runtime_settings.forget()


def refused(error, message, **where):
    with pytest.raises(StreamsError) as raised:
        send(**message, **where)
        pytest.fail(f"sent: {message!r:.200}")
    assert type(raised.value) is error, f"{message!r:.200}"
    assert str(raised.value)


@pytest.mark.parametrize("part", sorted({what.partition(":")[0] for what in BAD}))
@ON_DISK
def test_a_bad_message_is_refused_and_nothing_written(part, limit_of_1000_bytes):
    cases = {what: case for what, case in BAD.items() if what.partition(":")[0] == part}
    for number, (what, (error, changes)) in enumerate(cases.items()):
        message = {"topic": "new", "body": 1, **changes}
        with nothing_written():
            refused(error, message)
            with transaction.atomic():
                refused(error, message)
                Order.objects.create(number=what)
            with pytest.raises(error):
                send_many([Outgoing("newer"), Outgoing(**message), Outgoing("newest")])
            # The caller's transaction was not harmed.
            assert Order.objects.count() == number + 1


@pytest.mark.parametrize("access", [Access.READ_ONLY, Access.DENIED])
@ON_DISK
def test_a_topic_that_takes_no_messages_refuses_them(access):
    Topic.objects.create(name="orders", access=access)
    with nothing_written():
        refused(TopicDenied, {"topic": "orders"})
        with transaction.atomic():
            refused(TopicDenied, {"topic": "orders"})
        with pytest.raises(TopicDenied):
            send_many([Outgoing("new", 1), Outgoing("orders", 2)])


@pytest.mark.parametrize("access", [Access.READ_WRITE, Access.WRITE_ONLY])
@ON_DISK
def test_a_topic_that_takes_messages_takes_them(access):
    Topic.objects.create(name="orders", access=access)
    send("orders", 1)
    assert Message.objects.count() == 1


@ON_DISK
def test_an_unknown_topic_is_refused_when_topics_are_not_created_by_sending():
    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    Topic.objects.create(name="orders")
    runtime_settings.forget()
    with nothing_written():
        refused(UnknownTopic, {"topic": "Orders"})
        with transaction.atomic():
            refused(UnknownTopic, {"topic": "Orders"})
        with pytest.raises(UnknownTopic, match="Orders"):
            send_many([Outgoing("orders", 1), Outgoing("Orders", 2)])
    send("orders", 1)


@ON_DISK
def test_a_name_that_is_just_short_enough_is_taken():
    send(WIDE_LETTER * 127, key="😀" * 255, tag=WIDE_LETTER * 64)
    message = Message.objects.select_related("partition__topic").get()
    assert message.partition.topic.name == WIDE_LETTER * 127
    assert (message.key, message.tag) == ("😀" * 255, WIDE_LETTER * 64)


@pytest.mark.parametrize(
    "body", [b"\xff" * 1000, "ä" * 500, ["x" * 996]], ids=["bytes", "text", "JSON"]
)
@ON_DISK
def test_a_body_exactly_as_large_as_allowed_is_taken(body, limit_of_1000_bytes):
    send("orders", body)
    assert Message.objects.get().size == 1000


@ON_DISK
def test_the_largest_body_of_the_default_settings_is_taken():
    # "'" is what escaping doubles in the text of the statement.
    send("orders", b"'" * 4210688)
    assert bytes(Message.objects.get().body) == b"'" * 4210688
    with nothing_written():
        refused(MessageTooLarge, {"topic": "orders", "body": b"'" * 4210689})


@pytest.mark.parametrize("many", [False, True])
@ON_DISK
def test_a_list_of_what_are_not_messages_is_refused(many):
    with nothing_written(), pytest.raises(InvalidMessage, match="Outgoing"):
        send_many([Outgoing("new")] * many + [{"topic": "orders"}])  # type: ignore[list-item]


@pytest.fixture
def empty_database(tmp_path: Path):
    """The alias ``other`` is a database without tables."""
    given = connections["other"].settings_dict
    name = given["NAME"]
    connections["other"].close()
    if connection.vendor == "sqlite":
        given["NAME"] = str(tmp_path / "empty.sqlite3")
    else:
        given["NAME"] = f"{name}_empty"
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}_empty`")
    runtime_settings.forget()
    yield
    connections["other"].close()
    given["NAME"] = name
    if connection.vendor != "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE `{name}_empty`")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_missing_tables_are_named_as_the_reason(empty_database):
    refused(NotMigrated, {"topic": "orders"}, using="other")
    with transaction.atomic(using="other"):
        refused(NotMigrated, {"topic": "orders"}, using="other")
    with pytest.raises(NotMigrated, match="migrate --database other"):
        send_many([Outgoing("orders")], using="other")
    assert connections["other"].introspection.table_names() == []


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_missing_tables_are_noticed_also_when_the_topic_is_remembered(empty_database, monkeypatch):
    from streams.log import topics

    monkeypatch.setitem(runtime_settings._cache, "other", (math.inf, conf.DEFAULTS))
    info = topics.TopicInfo(1, "orders", "read-write", ((1, 0),), 0.0)
    monkeypatch.setitem(topics._cache, ("other", "orders"), (math.inf, info))
    refused(NotMigrated, {"topic": "orders"}, using="other")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
class TestAnOpenTransactionOnAnotherDatabase:
    def test_it_refuses_the_send_that_could_not_be_part_of_it(self):
        before = rows("other")
        with nothing_written(), transaction.atomic(using="other"):
            refused(WrongDatabase, {"topic": "orders"})
            with pytest.raises(WrongDatabase):
                send_many([Outgoing("orders")])
        assert rows("other") == before

    def test_using_says_that_it_is_meant(self):
        with pytest.raises(KeyError), transaction.atomic(using="other"):
            send("orders", 1, using="default")
            send_many([Outgoing("orders", 2)], using="default")
            raise KeyError
        assert Message.objects.count() == 2

    def test_it_does_not_matter_beside_a_transaction_on_the_right_one(self):
        with transaction.atomic(using="other"), transaction.atomic():
            send("orders", 1)
        assert Message.objects.count() == 1


def all_errors():
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, StreamsError)
    ]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_every_error_explains_itself_and_survives_a_process_boundary(error):
    assert len(str(error())) > 20
    assert "\n" not in str(error())
    assert str(error("in other words")) == "in other words"
    copy = pickle.loads(pickle.dumps(error("said once")))  # noqa: S301 - our own
    assert type(copy) is error
    assert str(copy) == "said once"


def test_wrong_arguments_are_also_the_errors_that_python_programmers_expect():
    for error in (InvalidName, InvalidMessage, NotSerializable, MessageTooLarge, NaiveDatetime):
        assert issubclass(error, ValueError)
    assert not issubclass(SendOutcomeUnknown, ValueError)


def test_the_control_words_of_handlers_are_not_errors_of_ems():
    assert not issubclass(Retry, StreamsError)
    assert not issubclass(Reject, StreamsError)
    assert Retry("later", delay=2.5).delay == timedelta(seconds=2.5)
    assert Retry(delay=timedelta(minutes=1)).delay == timedelta(minutes=1)
    assert Retry().delay is None
    with pytest.raises(ValueError, match="past"):
        Retry(delay=-1)
