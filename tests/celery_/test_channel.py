"""What a channel does with what Celery publishes, without a worker: nothing is lost in silence."""

from __future__ import annotations

from itertools import chain as chain_of
from itertools import repeat
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from celery import Task, chain
from celery.app.trace import build_tracer
from celery.exceptions import Reject
from django.db import OperationalError, connections, transaction
from django.db import connection as database
from django.test.utils import CaptureQueriesContext
from kombu import Exchange, Queue
from kombu.common import Broadcast
from kombu.transport.virtual.base import NotEquivalentError

from streams import conf
from streams.celery import channel
from streams.database import remembered
from streams.errors import SendOutcomeUnknown, TaskRefused, TopicDenied, WrongDatabase
from streams.log import topics
from streams.models import Access, Message, Topic
from streams.observe.audit.walk import audit
from streams.operate.topics import create
from tests.celery_ import broker as tasks
from tests.celery_.broker import broker, ran, record

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture(params=[1, 2])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send tasks by the protocol of Celery before 4.0, whose messages have no headers, too."""
    create = broker.amqp.task_protocols[request.param]
    monkeypatch.setattr(broker.amqp, "create_task_message", create)


def run(task: Task, *args: Any, **delivery_info: Any) -> Any:
    """Run a task as a process of a pool does; return its result, or its error."""
    one = str(uuid4())
    request = {"id": one, "root_id": one, "args": args, "kwargs": {}}
    request["delivery_info"] = delivery_info
    found = build_tracer(task.name, task, app=broker)(one, args, {}, request)[0]
    error = getattr(found, "exception", found)
    return getattr(error, "exc", error)  # as it was before it was pickled


def sent() -> list[str]:
    messages = Message.objects.filter(partition__topic__name="celery.celery")
    return sorted(messages.values_list("tag", flat=True))


@pytest.mark.mysql
@pytest.mark.usefixtures("protocol")
def test_a_retry_stands_though_the_transaction_of_its_task_is_rolled_back() -> None:
    run(tasks.retried_in_transaction, "one")
    assert not ran("one")
    assert waiting("celery") == 1


@pytest.mark.mysql
def test_a_retry_stands_though_the_transaction_of_its_task_has_failed() -> None:
    with broker.connection() as connection:
        Queue("orders", Exchange("shop", "topic"), "#")(connection.default_channel).declare()
    for where in (
        {"exchange": "shop", "routing_key": "new"},
        {"exchange": "", "routing_key": "orders"},
    ):
        remembered.forget()
        run(tasks.retried_in_a_failed_transaction, **where)
    assert waiting("orders") == 2


@pytest.mark.mysql
def test_a_queue_may_be_declared_in_a_failed_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "FRESH_SECONDS", 0.0)  # its topic is to be read again
    queue = Queue("orders", Exchange("shop"), "new")
    with broker.connection() as one, broker.connection() as two:
        queue(one.default_channel).declare()
        with transaction.atomic():
            transaction.set_rollback(True)
            queue(two.default_channel).declare()


@pytest.mark.mysql
def test_a_queue_may_be_declared_where_its_topic_is_not_committed_yet() -> None:
    with transaction.atomic():
        create("celery.reports", 1, "default")
        record.apply_async(["it"], queue="reports")
    assert waiting("reports") == 1


@pytest.mark.mysql
def test_a_retry_is_sent_though_the_connection_of_its_task_is_lost() -> None:
    run(tasks.retried_on_a_lost_connection)
    assert sent() == [tasks.retried_on_a_lost_connection.name]


@pytest.mark.mysql
@pytest.mark.parametrize(
    ("task", "args"),
    [(tasks.retried_without_a_connection, ()), (tasks.retried_in_transaction, ("one",))],
)
def test_a_retry_is_sent_though_the_database_cannot_be_reached_at_once(
    task: Task, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver: Any = type(connections["default"])
    connect, away = driver.get_new_connection, OperationalError(2003, "no route")
    answers = chain_of([away], repeat(None))

    def get_new_connection(self: Any, parameters: Any) -> Any:
        if error := next(answers):
            raise error
        return connect(self, parameters)

    database.ensure_connection()
    monkeypatch.setattr(driver, "get_new_connection", get_new_connection)
    run(task, *args)
    assert sent() == [task.name]


def test_a_retry_is_rather_sent_twice_than_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "send", unknown := Mock(side_effect=[SendOutcomeUnknown, []]))
    run(tasks.retried, "one")
    assert unknown.call_count == 2
    unknown.side_effect = SendOutcomeUnknown
    with pytest.raises(SendOutcomeUnknown):
        record.delay("its sender decides")
    assert unknown.call_count == 3


@pytest.mark.mysql
def test_a_retry_for_a_fanout_exchange_stands_though_its_transaction_is_rolled_back() -> None:
    """As of a Broadcast."""
    to = {"exchange": "all", "routing_key": "all"}
    record.apply_async(["it"], declare=[Exchange("all", type="fanout")], **to)
    run(tasks.retried_in_transaction, "one", **to)
    said = Message.objects.filter(partition__topic__name="celery:control")
    assert said.filter(headers__task=tasks.retried_in_transaction.name).count() == 1


def test_a_retry_in_a_transaction_on_another_database_stands() -> None:
    run(tasks.retried_in_transaction_on_other)
    assert sent() == [tasks.retried_in_transaction_on_other.name]


@pytest.mark.mysql
@pytest.mark.parametrize(
    "replacement",
    [record.si("it"), chain(record.si("it"), record.si("then"))],
    ids=["task", "chain"],
)
def test_what_replaces_a_task_stands_though_its_transaction_is_rolled_back(
    replacement: Any,
) -> None:
    run(tasks.replaced_in_transaction, "one", replacement)
    assert not ran("one")
    assert record.name in sent()


@pytest.mark.mysql
def test_what_a_task_sends_besides_is_a_part_of_its_transaction() -> None:
    run(tasks.retried_in_transaction, "one", record.si("rolled back"))
    assert sent() == [tasks.retried_in_transaction.name]


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("task", ["retried_in_transaction", "replaced_in_transaction"])
def test_where_a_retry_would_be_rolled_back_it_is_refused(vendor: str, task: str) -> None:
    if vendor != "sqlite":
        pytest.skip("there another connection writes it")
    error = run(getattr(tasks, task), "one", record.si("rolled back"))
    if isinstance(error, Reject):  # so Celery passes on what a retry raises
        error = error.reason
    assert isinstance(error, TaskRefused)
    assert "after the transaction" in str(error)
    assert sent() == []
    with transaction.atomic():  # no task runs
        record.delay("committed")
    assert waiting("celery") == 1


@pytest.mark.django_db(databases=["default", "other"])
def test_a_retry_in_a_test_case_is_a_part_of_its_transaction() -> None:
    run(tasks.retried_in_transaction, "one")
    assert sent() == []


TRANSIENT = Queue("brief", Exchange("brief", delivery_mode=1), "brief", durable=False)


def waiting(queue: str) -> int:
    return Message.objects.filter(partition__topic__name=f"celery.{queue}").count()


@pytest.mark.parametrize(
    "to",
    [{"queue": TRANSIENT}, {"exchange": "brief", "routing_key": "brief"}],
    ids=["queue", "exchange"],
)
def test_a_queue_that_is_not_durable_is_one_of_tasks(to: dict[str, Any]) -> None:
    with broker.connection() as connection:
        TRANSIENT(connection.default_channel).declare()
        record.apply_async(["it"], connection=connection, **to)
        assert waiting("brief") == 1
        assert connection.default_channel.basic_get("brief") is not None


def test_a_task_reaches_a_queue_by_an_exchange_that_is_not_durable() -> None:
    exchange = Exchange("brief", durable=False)
    with broker.connection() as one, broker.connection() as two:
        Queue("brief", exchange, "brief", durable=False)(one.default_channel).declare()
        exchange(two.default_channel).declare()
        to = {"exchange": "brief", "routing_key": "brief"}
        two.Producer().publish({"n": 1}, **to)  # what is no task, and is to outlive the broker
        record.apply_async(["it"], connection=two, **to)
    assert waiting("brief") == 2


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("option", ["auto_delete", "exclusive"])
def test_a_task_for_a_queue_of_one_process_is_refused(option: str) -> None:
    with broker.connection() as connection:
        queue = Queue("mine", **{option: True})
        with pytest.raises(TaskRefused, match=r"'mine'.*auto_delete"):
            record.apply_async(["it"], queue=queue, connection=connection)


def test_a_task_for_an_exchange_to_which_nothing_is_bound_is_refused() -> None:
    with broker.connection() as connection:
        with pytest.raises(TaskRefused, match="no queue is bound to exchange 'nothing'"):
            record.apply_async(["it"], exchange="nothing", routing_key="x", connection=connection)
        # What is no task may get lost, as with every broker.
        connection.Producer().publish({"n": 1}, exchange="nothing", routing_key="x")
    assert sent() == []


def test_a_task_for_a_fanout_exchange_reaches_the_processes_that_run() -> None:
    got: list[Any] = []
    queue = Broadcast("all")
    with (
        broker.connection() as one,
        broker.connection() as two,
        one.Consumer([queue], callbacks=[lambda _body, it: got.append(it)]),
    ):
        # Celery declares nothing of a Broadcast where it only sends.
        with pytest.raises(TaskRefused, match="declare="):
            record.apply_async(["it"], queue=queue, connection=two)
        fanout = [Exchange("all", type="fanout")]
        record.apply_async(["it"], queue=queue, declare=fanout, connection=two)
        one.drain_events(timeout=30)
    assert [it.headers["task"] for it in got] == [record.name]


def test_a_task_for_a_fanout_exchange_is_refused_in_a_transaction_on_another_database() -> None:
    to = {"exchange": "all", "declare": [Exchange("all", type="fanout")]}
    with pytest.raises(WrongDatabase), transaction.atomic(using="other"):
        record.apply_async(["it"], **to)


def test_what_a_queue_of_one_process_is_given_back_comes_again() -> None:
    got: list[Any] = []

    def handle(_body: Any, message: Any) -> None:
        got.append(message)
        (message.requeue if len(got) == 1 else message.ack)()

    queue = Broadcast("all")
    with (
        broker.connection() as connection,
        connection.Consumer([queue], callbacks=[handle]) as consumer,
    ):
        record.apply_async(["it"], queue=queue, connection=connection)
        for _ in range(2):
            connection.drain_events(timeout=30)
        assert not consumer.channel.posts
    assert [message.delivery_info["redelivered"] for message in got] == [False, True]
    assert got[0].headers == got[1].headers


@pytest.mark.parametrize("mode", [1, 2])
def test_what_is_for_a_fanout_exchange_reaches_a_queue_that_is_not_durable(mode: int) -> None:
    got: list[Any] = []
    exchange = Exchange("news", "fanout", durable=False)
    queue = Queue("news of one", exchange, durable=False)
    with (
        broker.connection() as one,
        broker.connection() as two,
        one.Consumer([queue], callbacks=[lambda body, _it: got.append(body)]),
    ):
        two.Producer(exchange=exchange).publish({"n": 1}, delivery_mode=mode)
        one.drain_events(timeout=30)
    assert got == [{"n": 1}]


@pytest.mark.parametrize("mode", [1, 2])
def test_a_reply_reaches_the_queue_of_another_process_whatever_its_delivery_mode(
    mode: int,
) -> None:
    """As of results by rpc:// with result_persistent."""
    got: list[Any] = []
    with broker.connection() as one, broker.connection() as two:
        queue = Queue("replies", durable=True, auto_delete=True)
        with one.Consumer([queue], callbacks=[lambda body, _it: got.append(body)]):
            to = {"routing_key": "replies", "correlation_id": "1"}
            two.Producer().publish({"n": 1}, delivery_mode=mode, **to)
            one.drain_events(timeout=30)
    assert got == [{"n": 1}]
    assert not waiting("replies")


def test_what_is_no_reply_waits_for_a_queue_that_nobody_has_declared() -> None:
    with broker.connection() as one, broker.connection() as two:
        two.Producer().publish({"n": 1}, routing_key="later")
        channel = one.default_channel
        Queue("later")(channel).declare()
        assert channel.basic_get("later") is not None


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_what_is_sent_after_the_declaration_of_its_queue_was_rolled_back_is_kept(
    serializer: str,
) -> None:
    """On SQLite its topic is rolled back, too, and Celery does not declare the queue again."""

    def publish() -> None:
        record.apply_async(["it"], queue="later", connection=connection, serializer=serializer)
        connection.Producer().publish({"n": 1}, routing_key="later")

    with broker.connection() as connection:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish()
            raise ZeroDivisionError
        publish()
    assert waiting("later") == 2


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_each_queue_of_an_exchange_gets_its_copy_whoever_has_bound_it(own: bool, mode: int) -> None:
    exchange = Exchange("shop", "topic")
    to = {"exchange": "shop", "routing_key": "order.new", "delivery_mode": mode}
    with broker.connection() as one, broker.connection() as two:
        Queue("orders", exchange, "order.#")((two if own else one).default_channel).declare()
        two.Producer().publish({"n": 1}, **to)
        for queue in ("mails", "stock"):
            Queue(queue, exchange, "#.new")(one.default_channel).declare()
            remembered.forget()  # FRESH_SECONDS later, in another process
            two.Producer().publish({"n": 1}, **to)
    assert [waiting(queue) for queue in ("orders", "mails", "stock")] == [3, 2, 1]


def test_what_is_for_several_queues_is_sent_to_all_or_to_none() -> None:
    with broker.connection() as connection:
        for queue in ("orders", "stock"):
            Queue(queue, Exchange("shop"), "new")(connection.default_channel).declare()
        Topic.objects.filter(name="celery.stock").update(access=Access.READ_ONLY)
        topics.forget()
        with pytest.raises(TopicDenied):
            connection.Producer().publish({"n": 1}, exchange="shop", routing_key="new")
    assert waiting("orders") == 0


@pytest.mark.parametrize("how", ["unbind_from", "delete"])
def test_a_queue_that_is_bound_no_more_gets_no_copy_from_any_process(how: str) -> None:
    exchange = Exchange("shop", "topic")
    orders, mails = (Queue(name, exchange, "order.#") for name in ("orders", "mails"))
    with broker.connection() as one, broker.connection() as two, broker.connection() as three:

        def publish() -> list[int]:
            for connection in (one, two, three):
                to = {"exchange": "shop", "routing_key": "order.new"}
                connection.Producer().publish({"n": 1}, **to)
            return [waiting(queue.name) for queue in (orders, mails)]

        for queue in (orders, mails):
            queue(one.default_channel).declare()
        assert publish() == [3, 3]
        bound = mails(two.default_channel)
        bound.delete() if how == "delete" else bound.unbind_from(exchange, "order.#")
        assert publish() == [6, 3]
        mails(three.default_channel).declare()
        assert publish() == [9, 6]
    assert audit("default") == []


@pytest.mark.mysql
def test_a_queue_is_bound_no_more_though_the_transaction_is_rolled_back() -> None:
    """What is read in a transaction is remembered by the whole process."""
    queue = Queue("mails", Exchange("shop"), "new")
    with broker.connection() as one, broker.connection() as two:
        mails = queue(one.default_channel)
        mails.declare()
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            mails.unbind_from(Exchange("shop"), "new")
            raise ZeroDivisionError
        with pytest.raises(TaskRefused):
            record.apply_async(["it"], exchange="shop", routing_key="new", connection=two)


@pytest.mark.mysql
def test_a_queue_that_is_declared_again_in_a_transaction_is_bound_again() -> None:
    queue = Queue("mails", Exchange("shop"), "new")
    to = {"exchange": "shop", "routing_key": "new"}
    with broker.connection() as one, broker.connection() as two:
        queue(one.default_channel).declare()
        queue(one.default_channel).delete()
        with transaction.atomic():
            record.apply_async(["it"], declare=[queue], connection=two, **to)
        record.apply_async(["it"], connection=one, **to)
    assert waiting("mails") == 2


def test_what_is_used_is_not_deleted_if_only_what_is_unused_is_to_be() -> None:
    with broker.connection() as one, broker.connection() as two:
        queue = Queue("mails", Exchange("shop"), "new")
        queue(one.default_channel).declare()
        two.Producer().publish({"n": 1}, routing_key="mails")
        assert one.default_channel.basic_get("mails") is not None
        queue(two.default_channel).delete(if_unused=True)
        Exchange("shop")(two.default_channel).delete(if_unused=True)
        to = {"exchange": "shop", "routing_key": "new"}
        record.apply_async(["it"], connection=two, **to)
        one.close()
        queue(two.default_channel).delete(if_unused=True)
        with pytest.raises(TaskRefused):
            record.apply_async(["it"], connection=two, **to)


def test_an_exchange_that_is_deleted_takes_no_queue_with_it() -> None:
    with broker.connection() as one, broker.connection() as two:
        channel = one.default_channel
        Queue("orders", Exchange("shop"), "new")(channel).declare()
        to = {"exchange": "shop", "routing_key": "new"}
        record.apply_async(["it"], connection=two, **to)
        Exchange("shop")(channel).delete()
        with pytest.raises(TaskRefused):
            record.apply_async(["it"], connection=two, **to)
        assert channel.basic_get("orders") is not None


def test_a_queue_that_is_not_empty_is_not_deleted_if_only_an_empty_one_is_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with broker.connection() as connection:
        channel = connection.default_channel
        queue = Queue("mails", Exchange("shop"), "new")(channel)
        queue.declare()
        to = {"exchange": "shop", "routing_key": "new"}
        connection.Producer().publish({"n": 1}, **to)
        queue.delete(if_empty=True)
        record.apply_async(["it"], connection=connection, **to)  # it is bound as before
        monkeypatch.setattr(channel, "_waiting", lambda _queue: 0)  # it came after this look
        queue.delete(if_empty=True)
        assert channel.basic_get("mails") is not None


def test_a_queue_of_one_process_that_is_bound_no_more_gets_nothing() -> None:
    got: list[Any] = []
    exchange = Exchange("news", "fanout")
    with broker.connection() as connection:
        queue = Queue("mine", exchange, auto_delete=True)(connection.default_channel)
        with connection.Consumer([queue], callbacks=[lambda body, _it: got.append(body)]):
            queue.unbind_from(exchange)
            producer = connection.Producer()
            producer.publish({"n": 1}, exchange="news", routing_key="")
            to = {"routing_key": "mine", "correlation_id": "1"}
            producer.publish({"n": 2}, **to)
            connection.drain_events(timeout=30)
    assert got == [{"n": 2}]


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_an_exchange_that_others_have_said_may_be_declared_in_another_way(kind: str) -> None:
    with broker.connection() as one, broker.connection() as two:
        Queue("orders", Exchange("shop"), "new")(one.default_channel).declare()
        producer, to = two.Producer(), {"exchange": "shop", "routing_key": "new"}
        producer.publish({"n": 1}, **to)  # from here on it is known to the second one
        mine = Exchange("shop", kind, durable=False)(two.default_channel)
        mine.declare()
        mine.declare()
        record.apply_async(["it"], connection=two, **to)
        with pytest.raises(NotEquivalentError):
            Exchange("shop", kind)(two.default_channel).declare()
    assert waiting("orders") == 2


def test_what_others_have_bound_is_not_read_again_for_each_message() -> None:
    exchange = Exchange("shop", "topic")
    with broker.connection() as connection:
        Queue("orders", exchange, "order.#")(connection.default_channel).declare()
        producer = connection.Producer()
        for to in ({"exchange": "shop", "routing_key": "order.new"}, {"routing_key": "orders"}):
            producer.publish({"n": 1}, **to)
            with CaptureQueriesContext(database) as queries:
                producer.publish({"n": 2}, **to)
            assert len(queries) == 1, queries.captured_queries
    assert waiting("orders") == 4


def test_a_command_reads_nothing_of_what_is_bound() -> None:
    with CaptureQueriesContext(database) as queries:
        broker.control.revoke("one")
    assert len(queries) > 0
    assert not [query for query in queries if "celery:bindings" in query["sql"]]


def test_what_is_bound_since_the_last_look_is_found_where_nothing_else_is() -> None:
    with broker.connection() as one, broker.connection() as two:
        Exchange("shop")(two.default_channel).declare()
        with pytest.raises(TaskRefused):
            record.apply_async(["it"], exchange="shop", routing_key="new", connection=two)
        Queue("orders", Exchange("shop"), "new")(one.default_channel).declare()
        record.apply_async(["it"], exchange="shop", routing_key="new", connection=two)
    assert waiting("orders") == 1


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("begun", [True, False])
def test_what_is_given_back_at_the_end_has_spent_an_attempt_if_it_had_begun(begun: bool) -> None:
    """As a cold shutdown gives it back, by SIGQUIT."""
    one = record.delay("it")
    with broker.connection() as connection:
        channel = connection.default_channel
        assert channel.basic_get("celery").properties["correlation_id"] == one.id
        if begun:
            connection.transport._note_begin(one.id)
        channel.qos.restore_unacked()
        again = channel.basic_get("celery")
        assert again.delivery_info["redelivered"] == begun
        again.ack()
    assert audit("default") == []
