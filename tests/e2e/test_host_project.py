"""EMS, installed from its wheel, in a project that has apps labelled streams and monitoring."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.e2e.host_project import HostProject

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def rows(host: HostProject, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(host.database)) as connection:
        return connection.execute(sql).fetchall()


def test_the_tables_of_the_host_and_of_ems_stand_side_by_side(host: HostProject) -> None:
    tables = {name for (name,) in rows(host, "SELECT name FROM sqlite_master WHERE type='table'")}
    assert {"streams_stream", "monitoring_play", "ems_msg", "ems_topic_group_log"} <= tables


def test_the_checks_of_the_host_say_nothing(host: HostProject) -> None:
    said = host.manage("check", "--fail-level", "WARNING", "--database", "default")
    assert "no issues" in said or "keine" in said


@pytest.mark.exhaustive
def test_ems_needs_no_migration_in_the_host(host: HostProject) -> None:
    host.manage("makemigrations", "--check", "--dry-run")


@pytest.mark.exhaustive
def test_the_host_can_test_its_sends_with_drain(host: HostProject) -> None:
    host.manage("test")


def test_ems_consume_delivers_what_another_process_has_sent(host: HostProject) -> None:
    films = ["Metropolis", "Shaky", "Free"]
    host.manage(
        "shell",
        "-c",
        f"from shop.streams.models import Stream\nfor film in {films * 10}: Stream.start(film)",
    )
    host.manage("ems_consume", "--drain", "--start", "earliest")
    counted = dict(rows(host, "SELECT `group`, COUNT(*) FROM monitoring_play GROUP BY 1"))
    # The charts count a Shaky before they fail; it is retried in 10 s. Billing rejects the Free.
    assert counted == {"charts": 30, "billing": 20}
    assert rows(host, "SELECT COUNT(*), MIN(attempt) FROM ems_retry_msg") == [(10, 2)]
    assert rows(host, "SELECT COUNT(*) FROM ems_dead_msg") == [(10,)]
    assert rows(host, "SELECT COUNT(*) FROM ems_client") == [(0,)]
