"""Commands of an installation whose topics are on several databases."""

from __future__ import annotations

import json
import time

import pytest
from django.core.management import CommandError, call_command

from streams import Outgoing, consumer, runtime_settings, send_many
from streams.log import topics
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    DeadMessage,
    Message,
    Partition,
    Topic,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.operate.topic_move import TopicMove
from streams.testing import drain

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture(autouse=True)
def shards(ems_settings):
    ems_settings(SHARDS={"clicks": "other"})
    topics.forget()
    runtime_settings.forget()


def two_topics():
    consumer("orders", group="mail")(lambda message: None)

    @consumer("clicks", group="count", max_retries=0)
    def count(message):
        raise ValueError

    for topic, alias in (("orders", "default"), ("clicks", "other")):
        send_many([Outgoing(topic, n) for n in range(3)], using=alias)
    for group, alias in (("mail", "default"), ("count", "other")):
        drain(group, using=alias)


def printed(capsys, *arguments, **options):
    capsys.readouterr()
    call_command(*arguments, **options)
    return capsys.readouterr().out


def objects(capsys, *arguments):
    return json.loads(printed(capsys, *arguments, "--json"))


def test_lists_show_all_databases_in_one_table(capsys):
    two_topics()
    rows = objects(capsys, "ems_topics", "list", "--all-databases")
    assert [(row["database"], row["topic"]) for row in rows] == [
        ("default", "orders"),
        ("other", "clicks"),
    ]
    text = printed(capsys, "ems_topics", "list", "--all-databases")
    assert text.splitlines()[0].startswith("database  topic")
    rows = objects(capsys, "ems_groups", "list", "--all-databases", "--sort", "dead")
    assert [(row["database"], row["dead"]) for row in rows] == [("other", 3), ("default", 0)]
    assert {r["database"] for r in objects(capsys, "ems_dead", "list", "--all-databases")} == {
        "other"
    }
    assert {r["database"] for r in objects(capsys, "ems_config", "list", "--all-databases")} == {
        "default",
        "other",
    }
    for verb in ("consumers", "deliveries", "retries"):
        objects(capsys, "ems_groups", verb, "--all-databases")
    assert objects(capsys, "ems_prepared", "list", "--all-databases") == []


@pytest.mark.parametrize("alias", ["default", "other"])
def test_a_list_is_whole_if_only_one_database_has_rows(capsys, alias):
    two_topics()
    group = ConsumerGroup.objects.using(alias).get()
    Consumer.objects.using(alias).create(client_id="me", group=group, lease_until=UtcNow(LEASE))
    (row,) = objects(capsys, "ems_groups", "consumers", "--all-databases")
    assert (row["database"], row["client"], row["live"]) == (alias, "me", True)


def test_a_group_or_a_topic_is_looked_for_on_all_databases(capsys):
    two_topics()
    group = ConsumerGroup.objects.using("other").get()
    Consumer.objects.using("other").create(client_id="me", group=group, lease_until=UtcNow(LEASE))
    (row,) = objects(capsys, "ems_groups", "consumers", "count", "--all-databases")
    assert (row["database"], row["client"]) == ("other", "me")
    rows = objects(capsys, "ems_dead", "list", "--group", "count", "--all-databases")
    assert {row["database"] for row in rows} == {"other"}
    rows = objects(capsys, "ems_topics", "producers", "clicks", "--all-databases")
    assert {row["database"] for row in rows} == {"other"}
    (found,) = objects(capsys, "ems_purge", "--topic", "clicks", "--all-databases")
    assert found["database"] == "other"
    for command in (("ems_groups", "consumers", "count2"), ("ems_topics", "producers", "nowhere")):
        with pytest.raises(CommandError, match="There is no"):
            call_command(*command, "--all-databases")


def test_one_database_is_listed_without_the_option(capsys):
    two_topics()
    (row,) = objects(capsys, "ems_topics", "list")
    assert (row["topic"], row["database"]) == ("orders", "default")
    assert "database" not in printed(capsys, "ems_topics", "list")
    with pytest.raises(CommandError, match="not both"):
        call_command("ems_topics", "list", "--all-databases", "--database", "other")


def test_the_purge_runs_on_all_databases(capsys):
    two_topics()
    for alias in ("default", "other"):
        Topic.objects.using(alias).update(retention_count=1)
    found = objects(capsys, "ems_purge", "--all-databases")
    assert [(one["database"], one["partitions"][0]["deleted"]) for one in found] == [
        ("default", 2),
        ("other", 2),
    ]
    assert printed(capsys, "ems_purge", "--all-databases").splitlines()[0] == "default:"
    assert Message.objects.using("other").count() == 1


def test_the_doctor_looks_at_all_databases_and_fails_if_one_is_ill(capsys):
    two_topics()
    Partition.objects.using("other").update(next_offset=1)
    with pytest.raises(SystemExit) as ended:
        call_command("ems_doctor", "--all-databases", "--audit", "--json")
    assert ended.value.code == 1
    rows = json.loads(capsys.readouterr().out)
    assert {row["database"] for row in rows} == {"default", "other"}
    assert {row["database"] for row in rows if row["name"] == "offset gap"} <= {"other"}


def test_commands_that_the_doctor_names_have_the_database(capsys):
    two_topics()
    for topic, alias, named in (("orders", "default", False), ("clicks", "other", True)):
        send_many([Outgoing(topic, 1)], using=alias)
        sequence(alias)
        ConsumerGroup.objects.using(alias).update(paused=True)
        capsys.readouterr()
        with pytest.raises(SystemExit):  # no process runs the steps
            call_command("ems_doctor", "--database", alias, "--audit", "--seconds=0", "--json")
        rows = json.loads(capsys.readouterr().out)
        hints = [row["hint"] for row in rows]
        commands = [one for one in hints if one.startswith(("ems_groups", "ems_doctor --resume"))]
        assert len(commands) == 2, hints
        assert [f" --database {alias}" in one for one in commands] == [named, named]
    (dead,) = (row["hint"] for row in rows if row["name"] == "dead letters")
    assert dead.startswith("ems_dead list --database other; ")


def test_an_audit_goes_on_in_one_database():
    with pytest.raises(CommandError, match="Say with --database"):
        call_command("ems_doctor", "--resume", "groups:1:0:0", "--all-databases")


def test_a_command_that_names_a_topic_works_on_its_database(capsys):
    two_topics()
    assert [row["offset"] for row in objects(capsys, "ems_messages", "list", "clicks")] == [2, 1, 0]
    assert objects(capsys, "ems_messages", "show", "clicks/0@1")["offset"] == 1
    call_command("ems_groups", "pause", "count", "--topic", "clicks")
    assert ConsumerGroup.objects.using("other").get().paused
    call_command("ems_topics", "retire", "clicks", "--yes")
    assert Topic.objects.using("other").get().access == "read-only"
    with pytest.raises(CommandError, match="no topic"):
        call_command("ems_messages", "list", "clicks", "--database", "default")


@pytest.mark.exhaustive
def test_a_topic_is_moved_and_what_stays_is_said(capsys, monkeypatch):
    two_topics()
    ConsumerGroup.objects.using("other").create(
        topic=Topic.objects.using("other").get(), name="tail", mode="broadcast"
    )
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    found = objects(capsys, "ems_topics", "move", "clicks", "--to", "default", "--dry-run")
    assert (found["obstacles"], found["dead_letters"]) == ([], 3)
    assert found["broadcast_groups"] == ["tail"]
    text = printed(capsys, "ems_topics", "move", "clicks", "--to", "default")
    assert "moved: clicks" in text
    assert "3 dead letters stay on other" in text
    assert "ems_topics routes --accept" in text
    assert Topic.objects.using("default").filter(name="clicks").exists()
    assert DeadMessage.objects.using("other").count() == 3
    assert "moved: clicks" in printed(capsys, "ems_topics", "move", "clicks", "--to", "default")


def test_a_move_says_what_is_missing(capsys):
    two_topics()
    Partition.objects.using("other").update(next_offset=4)
    found = objects(capsys, "ems_topics", "move", "clicks", "--to", "default", "--dry-run")
    assert any("nobody consumes" in text for text in found["obstacles"])
    with pytest.raises(CommandError, match="nobody consumes"):
        call_command("ems_topics", "move", "clicks", "--to", "default")
    with pytest.raises(CommandError, match="say --database, from where"):
        call_command("ems_topics", "move", "clicks", "--to", "other")
    for options in ((), ("--give-up", "--to", "default"), ("--give-up", "--dry-run")):
        with pytest.raises(CommandError, match="either --to ALIAS or --give-up"):
            call_command("ems_topics", "move", "clicks", *options)
    with pytest.raises(CommandError, match="No move of clicks"):
        call_command("ems_topics", "move", "clicks", "--give-up")
    Partition.objects.using("other").update(next_offset=3)
    TopicMove("clicks", "other", "default").close()
    assert "given up: clicks" in printed(capsys, "ems_topics", "move", "clicks", "--give-up")
    assert Topic.objects.using("other").get().access == "read-write"
    with pytest.raises(CommandError, match="no database alias"):
        call_command("ems_topics", "move", "clicks", "--to", "nowhere")
