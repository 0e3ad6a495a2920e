"""The jobs see the topics and groups of their namespace, and the roll-ups those of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import BacklogLevel, Traffic
from monitoring.options import options_of
from monitoring.sample.take import take
from sparkjobs.config import Config
from sparkjobs.database import connected
from streams import consumer, send
from streams.errors import Reject
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Message
from streams.testing import drain, sent
from tests.spark.direct import Reading
from tests.spark.test_archive import history, replay, run

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

Use = Callable[[str], Config]


@pytest.fixture
def use(ems_settings: Callable[..., None], option_file: Path, tmp_path: Path) -> Use:
    """Work in a namespace from now on; return the configuration that a job gets there."""

    def change(namespace: str) -> Config:
        ems_settings(NAMESPACE=namespace)
        path = tmp_path / f"{namespace}.cnf"
        path.touch(mode=0o600)
        path.write_text(f"{option_file.read_text()}namespace={namespace}\n")
        return Config.load(str(path))

    return change


def test_a_job_is_told_the_namespace_of_the_project(ems_settings: Callable[..., None]) -> None:
    assert "namespace" not in options_of("default")
    ems_settings(NAMESPACE="blue")
    assert "namespace=blue\n" in options_of("default")


def test_the_source_gives_the_rows_of_its_namespace_without_the_prefix(use: Use) -> None:
    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        raise Reject("no")

    configs = {name: use(name) for name in ("", "blue", "green")}
    for name in configs:
        use(name)
        send("orders", name or "none")
        drain()
    for name, config in configs.items():
        for table in ("messages", "deliveries", "dead"):
            for options in ({}, {"topic": "orders"}):
                (row,) = Reading(config, table=table, **options).rows()
                assert row["topic"] == "orders"
                assert row.get("group", "mail") == "mail"
                assert (name or "none").encode() == row.get("body", (name or "none").encode())
    reading = Reading(configs["blue"], "topic", namespace="*")
    reading.config = reading.request.configuration()
    names = sorted(row["topic"] for row in reading.rows())
    assert names == [" blue/orders", " green/orders", "orders"]


def test_a_roll_up_counts_all_namespaces(spark: Any, use: Use) -> None:
    """The windows of a job are those of the database: one that left some out would lose them."""
    from sparkjobs.jobs.backlog import roll_up_backlog
    from sparkjobs.jobs.traffic import roll_up_traffic

    consumer("orders", group="mail")(lambda message: None)
    for name in ("green", "blue"):
        config = use(name)
        drain()
        send("orders", name, key="k")
        take("default", timezone.now().replace(second=0, microsecond=0), 360)
    sequence("default")
    config = config.everywhere()
    with connected(config) as connection:
        roll_up_traffic(spark, config, connection, lambda text: None)
        roll_up_backlog(spark, config, connection, lambda text: None)
    assert Traffic.objects.values("partition").distinct().count() == 2
    groups = set(ConsumerGroup._base_manager.values_list("pk", flat=True))
    assert set(BacklogLevel.objects.values_list("group", flat=True)) == groups


@pytest.mark.exhaustive
def test_archives_and_replays_of_two_namespaces_do_not_meet(spark: Any, use: Use) -> None:
    configs = {name: use(name) for name in ("", "blue")}
    for name, config in configs.items():
        use(name)
        history()
        said = run(spark, config)
        assert [line.split()[0] for line in said] == ["flights"] * 2
    for name, config in configs.items():
        use(name)
        before = len(sent("flights"))
        total = Message.objects.count()
        assert "10 messages sent" in replay(spark, config)
        assert len(sent("flights")) == before + 10
        assert Message.objects.count() == total + 10
