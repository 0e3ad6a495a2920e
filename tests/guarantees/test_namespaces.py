"""Two namespaces share a database and a Redis, and neither sees what is of the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import reverse

from streams import Reject, Retry, consumer, runtime_settings, send, signals, wakeup
from streams.conf import settings
from streams.errors import ConfigurationError, InvalidName
from streams.log.foreign import other_namespaces
from streams.models import (
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Message,
    Redrive,
    RedriveState,
    State,
    Step,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.models.step import SWEEP
from streams.observe.audit.walk import audit
from streams.observe.diagnoses import OK, WARNING, namespaces
from streams.operate.topics import create
from streams.retain.purge import Purge
from streams.steps import turns
from streams.steps.redrives import step_redrives_if_due
from streams.steps.retries import step_retries
from streams.steps.sweep import sweep, sweep_if_due
from streams.testing import drain, sent
from tests.processes import Spawn, wait_for

Change = Callable[..., None]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

WORKING = """
import sys
from streams import consumer
from streams.deliver import poller
from streams.process import pool
poller.QUICK_SECONDS = pool.LOOK_SECONDS = float(sys.argv[1])

@consumer("orders", group="mail")
def handle(message):
    print("got", message.topic, message.body, flush=True)

from django.core.management import call_command
call_command("ems_consume", "--start", "earliest", "--threads", "1", *sys.argv[2:])
"""


@pytest.fixture
def use(ems_settings: Change) -> Callable[[str], None]:
    """Work in another namespace from now on, as another process would."""

    def change(namespace: str) -> None:
        ems_settings(NAMESPACE=namespace)

    return change


def stored(model: Any = Topic) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT name FROM {model._meta.db_table} ORDER BY name")
        return [name for (name,) in cursor.fetchall()]


# -- messages --


def test_the_same_topic_in_two_namespaces_is_two_topics(use) -> None:
    got: list[tuple[str, Any]] = []

    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        got.append((message.topic, message.body))

    for namespace in ("", "blue", "green"):
        use(namespace)
        assert send("orders", namespace or "none").topic == "orders"
    assert stored() == [" blue/orders", " green/orders", "orders"]
    for namespace in ("", "blue", "green"):
        use(namespace)
        assert [m.body for m in sent("orders")] == [namespace or "none"]
        assert drain().done == 1
        assert got.pop() == ("orders", namespace or "none")
        assert [t.name for t in Topic.objects.all()] == ["orders"]
        assert str(ConsumerGroup.objects.get()) == "mail on orders"
    assert stored(ConsumerGroup) == [" blue/mail", " green/mail", "mail"]


def test_real_consumers_of_two_namespaces_get_their_own_messages_only(spawn: Spawn, use) -> None:
    children = {}
    for namespace in ("blue", "green"):
        use(namespace)
        children[namespace] = spawn(WORKING, 0.02)
        children[namespace].expect("mail")
    for n in range(20):
        for namespace in children:
            use(namespace)
            send("orders", f"{namespace} {n}")
    for namespace, child in children.items():
        other = "green" if namespace == "blue" else "blue"
        for n in range(20):
            child.expect(f"got orders {namespace} {n}")
        child.terminate()
        assert f"got orders {other}" not in child.succeed()
    assert Delivery.objects.exclude(state=State.DONE).count() == 0


def listened_to(channel: str) -> int:
    return int(wakeup._redis().pubsub_numsub(channel)[0][1])


@pytest.mark.redis
def test_a_wake_up_reaches_its_own_namespace_and_database_only(
    spawn: Spawn, ems_settings: Change
) -> None:
    ems_settings(REDIS="redis", POLL_SECONDS=30)
    children = {}
    channels = {}
    for namespace in ("blue", "green"):
        ems_settings(NAMESPACE=namespace)
        children[namespace] = spawn(WORKING, 30)
        channels[namespace] = wakeup.channel("default")
    for channel in channels.values():
        wait_for(partial(listened_to, channel))
    assert len(set(channels.values())) == 2
    heard = wakeup._redis().pubsub(ignore_subscribe_messages=True)
    heard.subscribe(channels["green"])
    heard.get_message(timeout=1)
    ems_settings(NAMESPACE="blue")
    for n in range(3):
        started = time.monotonic()
        send("orders", n)
        children["blue"].expect(f"got orders {n}", timeout=10)
        assert time.monotonic() - started < 5  # not by polling
    assert heard.get_message(timeout=0.5) is None
    heard.close()


def test_two_servers_with_databases_of_one_name_have_two_channels() -> None:
    channels = []
    for id_ in ("0123", "4567"):
        SystemConfig.objects.update_or_create(name="installationId", defaults={"value": id_})
        runtime_settings.forget()
        wakeup._channels.clear()
        channels.append(wakeup.channel("default"))
    assert len(set(channels)) == 2
    assert ":0123:" in channels[0]


def test_names_are_as_long_as_the_column_with_the_prefix(use) -> None:
    use("blue")
    with pytest.raises(InvalidName, match="longer than 121"):
        send("x" * 122, 1)
    send("x" * 121, 1)
    with pytest.raises(InvalidName):
        create("y" * 122, 1, "default")
    with pytest.raises(InvalidName):
        consumer("orders", group="z" * 122)(print)
    with pytest.raises(ValidationError, match="121"):
        Topic(name="y" * 122).full_clean()


@pytest.mark.parametrize("bad", ["Blue", "a b", "a/b", "x" * 17, None, 7])
def test_a_namespace_that_cannot_be_told_apart_is_refused(ems_settings: Change, bad: Any) -> None:
    ems_settings(NAMESPACE=bad)
    with pytest.raises(ConfigurationError, match="NAMESPACE"):
        settings()


# -- steps --


def test_a_namespace_ends_and_buries_only_its_own(use) -> None:
    """Deployments may differ in code: which limits a group has, only its own says."""

    @consumer("orders", group="mail", max_retries=0)
    def handle(message: Any) -> None:
        raise Retry

    use("green")
    send("orders", 1)
    drain()
    group = ConsumerGroup.objects.get()
    expired = {"group_id": group.pk, "partition_id": Message.objects.get().partition_id}
    Delivery.objects.create(
        **expired,
        first_offset=0,
        last_offset=0,
        progress=0,
        client_id="1@2@3",
        thread="t",
        token="x",
        deadline=UtcNow(-timedelta(hours=1)),
    )
    use("blue")
    assert (sweep("default"), step_retries("default")) == (0, 0)
    assert audit("default") == []
    use("green")
    assert sweep("default") == 1


def test_each_namespace_wins_its_own_steps(use) -> None:
    for namespace in ("", "blue", "green"):
        use(namespace)
        sweep_if_due("default")
        assert Step.objects.filter(name=SWEEP).exists()
    assert stored(Step) == [" blue/sweep", " green/sweep", "sweep"]


def test_a_purge_is_of_its_own_namespace(use) -> None:
    consumer("orders", group="mail")(lambda message: None)
    for namespace in ("blue", "green"):
        use(namespace)
        send("orders", 1)
        drain()
        Topic.objects.update(retention_consumed=True)
    (done,) = Purge("default").run()
    assert (str(done.floor.partition), done.deleted) == ("orders/0", 1)
    assert Message.objects.count() == 1


# -- what people see --


def commanded(*words: str) -> str:
    output = StringIO()
    call_command(*words, stdout=output)
    return output.getvalue()


@pytest.fixture
def both(use: Callable[[str], None]) -> Callable[[str], None]:
    """In blue and in green a dead letter of "mail" on "orders", and in green one on "secret"."""
    topics = {"blue": ["orders"], "green": ["orders", "secret"]}

    def refuse(message: Any) -> None:
        raise Reject(f"of {settings().NAMESPACE}")

    consumer("orders", group="mail")(refuse)
    for namespace, names in topics.items():
        use(namespace)
        for name in names:
            send(name, namespace)
        drain()
    return use


def test_commands_show_their_own_namespace_without_its_prefix(both) -> None:
    both("blue")
    foreign = DeadMessage.objects.get(error__contains="green").pk
    for words in (
        ["ems_topics", "list"],
        ["ems_groups", "list"],
        ["ems_groups", "deliveries"],
        ["ems_groups", "retries"],
        ["ems_groups", "consumers"],
        ["ems_dead", "list"],
        ["ems_dead", "export"],
        ["ems_messages", "list", "orders"],
        ["ems_messages", "trace", "orders/0@0"],
        ["ems_purge", "--dry-run"],
    ):
        text = commanded(*words)
        assert "blue/" not in text, words
        assert "green" not in text.replace("of green", "green"), words
        assert "secret" not in text, words
    with pytest.raises(CommandError, match="no dead letter"):
        commanded("ems_dead", "show", str(foreign))
    with pytest.raises(CommandError):
        commanded("ems_messages", "list", "secret")
    (letter,) = [one for one in DeadMessage.objects.all() if "blue" in one.error]
    assert "orders" in commanded("ems_dead", "show", str(letter.pk))
    assert "discarded: 1" in commanded("ems_dead", "discard", "--all", "--yes")
    assert DeadMessage.objects.get().pk == foreign


def test_signals_have_names_without_the_prefix(use) -> None:
    told: list[dict[str, Any]] = []

    def listen(sender: Any, **about: Any) -> None:
        told.append(about)

    signals.message_dead.connect(listen)
    try:
        use("blue")

        @consumer("orders", group="mail")
        def handle(message: Any) -> None:
            raise Reject("no")

        send("orders", 1)
        drain()
    finally:
        signals.message_dead.disconnect(listen)
    (about,) = told
    assert (about["topic"], about["group"]) == ("orders", "mail")


def test_pages_show_their_own_namespace(both, admin_client: Any) -> None:
    both("blue")
    for model in (
        *("topic", "consumergroup", "partition", "cursor", "message"),
        *("deadmessage", "delivery", "retrymessage", "step", "redrive"),
    ):
        url = reverse(f"admin:ems_{model}_changelist")
        text = admin_client.get(url).content.decode()
        assert "blue/" not in text, model
        assert "green" not in text, model
        assert "secret" not in text, model
        assert "orders" in text or model in ("step", "retrymessage", "redrive"), model


def test_a_redrive_is_seen_stopped_and_carried_out_in_its_own_namespace_only(
    both, admin_client: Any
) -> None:
    both("green")
    commanded("ems_dead", "redrive", "--all", "--rate", "1000")
    green = Redrive.objects.get()
    green.created_at -= timedelta(seconds=10)
    Redrive.objects.update(stepped_at=green.created_at)
    both("blue")
    assert "mail on orders" not in commanded("ems_redrives", "list")
    with pytest.raises(CommandError, match="There is no redrive"):
        commanded("ems_redrives", "stop", str(green.pk))
    for page in ("redrive", "deadmessage"):
        text = admin_client.get(reverse(f"admin:ems_{page}_changelist")).content.decode()
        assert "root@" not in text, page
        assert "at 1000 a second" not in text, page
    assert step_redrives_if_due("default") == 0
    both("green")
    assert "mail on orders" in commanded("ems_redrives", "list")
    turns._ask_at.clear()  # as another process
    assert step_redrives_if_due("default") == 1
    Redrive.objects.update(state=RedriveState.DONE, finished_at=UtcNow(-timedelta(days=31)))
    both("blue")  # whoever deletes old rows deletes those of all
    assert Purge("default").delete_old_rows()["redrives"] == 1
    assert not Redrive._base_manager.exists()


def test_a_topic_of_another_namespace_has_no_page(both, admin_client: Any) -> None:
    both("green")
    secret = Topic.objects.get(name="secret")
    url = reverse("admin:ems_topic_change", args=[secret.pk])
    assert admin_client.get(url).status_code == 200
    both("blue")
    assert admin_client.get(url).status_code == 302  # to the index: there is no such row


def test_the_doctor_lists_the_others_and_sees_a_producer_in_the_wrong_one(use) -> None:
    assert list(namespaces("default")) == []
    consumer("orders", group="mail")(lambda message: None)
    use("blue")
    send("orders", 1)
    drain()
    (found,) = namespaces("default")
    assert (found.level, found.text) == (OK, "This one is “blue”; topics of others: no others.")
    use("green")
    send("orders", 1)
    (found,) = namespaces("default")
    assert found.level == WARNING
    assert "topics of others: “blue” (1)" in found.text
    assert "read these topics, and none of this one: orders" in found.text
    use("")
    assert other_namespaces("default") == {"blue": 1, "green": 1}
    (found,) = namespaces("default")
    assert found.text == "This one is none; topics of others: “blue” (1), “green” (1)."


def test_a_broadcast_client_has_a_position_in_each_namespace(use, ems_settings, tmp_path: Path):
    from streams.consume.limits import Overrides
    from streams.process.broadcast.running_group import RunningBroadcastGroup
    from tests.consuming import registered

    consumer("prices", group="cache", mode="broadcast")(print)
    ems_settings(STATE_DIR=str(tmp_path))
    paths = set()
    for namespace in ("blue", "green"):
        use(namespace)
        group = RunningBroadcastGroup(registered("prices", "cache"), "default", Overrides(), "me")
        paths.add(group._file.path)
        group.close()
    assert len(paths) == 2
