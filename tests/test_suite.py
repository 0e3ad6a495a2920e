"""What ``make test`` promises of itself: what it runs, where, and what it says of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from streams import runtime_settings, send
from streams.log import topics
from tests import environments, packages, pythons, servers, tiers
from tests.emptying import empty, teardown
from tests.hostapp.models import Handled, Order
from tests.legs import Leg, run_all
from tests.summary import keep, summary

REPORTING = """
from tests import report

def pytest_configure(config):
    config.pluginmanager.register(report.plugin())
"""
SECOND_TRY = """
from pathlib import Path
SEEN = Path(__file__).with_suffix(".seen")

def test_passes_at_the_second_try():
    if not SEEN.exists():
        SEEN.touch()
        raise AssertionError("the first")

def test_fails():
    raise AssertionError("each")
"""


@pytest.fixture
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Which databases of a run have this very test: ``chosen("mysql", "mariadb")``."""

    monkeypatch.delenv("EMS_TEST_LEG", raising=False)

    def run(*databases: str, tier: str = "commit") -> list[str]:
        monkeypatch.setattr(tiers, "TIER", tier)
        monkeypatch.setenv("EMS_TEST_DATABASES", ",".join(databases))
        found = []
        for name in databases:
            monkeypatch.setattr(tiers, "VENDOR", name)
            if not tiers.left_out(request.node, ""):
                found.append(name)
        return found

    return run


def test_what_needs_no_database_runs_once_and_always(chosen) -> None:
    assert chosen("sqlite", "mariadb", "mysql") == ["sqlite"]
    assert chosen("sqlite", "mariadb", "mysql", tier="all") == ["sqlite"]
    assert chosen("mariadb", "mysql") == ["mysql"]
    assert chosen("mariadb") == ["mariadb"]


@pytest.mark.django_db
def test_what_uses_the_database_runs_once_on_mysql_if_it_is_there(chosen) -> None:
    assert chosen("sqlite", "mariadb", "mysql") == ["mysql"]
    assert chosen("sqlite", "mariadb", "mysql", tier="all") == ["sqlite", "mariadb", "mysql"]
    assert chosen("sqlite", "mariadb") == ["mariadb"]
    assert chosen("sqlite") == ["sqlite"]


@pytest.mark.mysql
def test_what_only_a_server_can_run_is_not_given_to_sqlite(chosen) -> None:
    assert chosen("sqlite", "mariadb", "mysql") == ["mysql"]
    assert chosen("sqlite", "mariadb") == ["mariadb"]


@pytest.mark.django_db(transaction=True)
def test_in_some_folders_the_tests_and_their_cases_take_turns_between_the_servers(
    chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "IN_TURNS", {"test_suite.py"})
    turns = []
    for case in range(3):
        monkeypatch.setattr(tiers, "case_of", lambda item, case=case: case)
        turns += chosen("sqlite", "mariadb", "mysql")
        assert chosen("mysql", "mariadb", tier="all") == ["mysql", "mariadb"]
        assert chosen("mariadb") == ["mariadb"]
        assert chosen("sqlite") == ["sqlite"]
    assert turns in (["mysql", "mariadb", "mysql"], ["mariadb", "mysql", "mariadb"])


@pytest.mark.django_db(transaction=True)
def test_the_commit_tier_has_samples_of_many_cases(chosen, monkeypatch: pytest.MonkeyPatch) -> None:
    there = []
    for case in range(10):
        monkeypatch.setattr(tiers, "case_of", lambda item, case=case: case)
        there += [case] if chosen("mysql") else []
        assert chosen("mysql", tier="all") == ["mysql"]
    assert there == [0, 1, 2, 3, 6, 9]


@pytest.mark.parametrize("case", range(5))
def test_it_has_all_cases_that_use_no_database(case: int, chosen) -> None:
    assert chosen("sqlite", "mysql") == ["sqlite"]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_sqlite_leaves_what_takes_long_in_some_folders_to_servers(
    chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "LEFT_TO_SERVERS", {"test_suite.py"})
    assert chosen("sqlite", "mariadb", "mysql", tier="all") == ["mariadb", "mysql"]
    assert chosen("sqlite", tier="all") == ["sqlite"]


@pytest.mark.django_db(transaction=True)
def test_what_takes_long_in_a_browser_runs_on_one_server_always(
    chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "ON_ONE_ALWAYS", {"test_suite.py"})
    monkeypatch.setattr(tiers, "ONE_IS_ENOUGH", {"test_suite.py": tiers.ON_A_SERVER})
    for tier in ("commit", "all"):
        assert chosen("sqlite", "mariadb", "mysql", tier=tier) == ["mysql"]
    assert chosen("sqlite", "mariadb", tier="all") == ["mariadb"]


@pytest.mark.slow
def test_what_needs_no_database_runs_once_in_these_folders_too(
    chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "LEFT_TO_SERVERS", {"test_suite.py"})
    assert chosen("sqlite", "mariadb", "mysql", tier="all") == ["sqlite"]


@pytest.mark.every_database
def test_a_test_may_ask_for_every_database(chosen) -> None:
    assert chosen("sqlite", "mariadb", "mysql") == ["sqlite", "mariadb", "mysql"]


@pytest.mark.mariadb
def test_what_only_mariadb_can_run_is_not_given_to_mysql(chosen) -> None:
    assert chosen("sqlite", "mariadb", "mysql") == ["mariadb"]


@pytest.mark.django_db(transaction=True)
def test_a_further_server_runs_only_what_is_chosen_for_it(
    chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMS_TEST_LEG", "further")
    assert chosen("mariadb") == []


@pytest.mark.mariadb_11
@pytest.mark.django_db(transaction=True)
def test_what_is_chosen_for_the_further_server_runs_there_too(
    chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen("sqlite", "mariadb", "mysql") == ["mysql"]
    monkeypatch.setenv("EMS_TEST_LEG", "further")
    assert chosen("mariadb") == ["mariadb"]


@pytest.mark.parametrize(
    ("kind", "said", "fits"),
    [
        ("mariadb-11", "mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu", False),
        ("mariadb-11", "mariadbd from 11.8.6-MariaDB, client 15.2", False),
        ("mariadb-11", "mariadbd  Ver 11.4.4-MariaDB-3 for debian-linux-gnu", False),
        ("mariadb-11", "mariadbd  Ver 11.8.6-MariaDB-0+deb13u1 from Debian", True),
        ("mariadb-11", "mariadbd  Ver 12.1.2-MariaDB", True),
        ("mysql", "mysqld  Ver 9.7.0 for Linux on x86_64", True),
        ("mysql", "mysqld  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu", False),
    ],
)
def test_a_program_on_the_path_is_used_if_its_version_fits(
    kind: str, said: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / packages.PACKAGES[kind].program
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(packages, "SEARCH_PATH", f"{tmp_path}:/bin:/usr/bin")
    assert packages._on_path(kind) is fits


def test_called_directly_pytest_runs_it_on_whatever_it_is_given(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "TIER", "")
    for name in ("sqlite", "mariadb", "mysql"):
        monkeypatch.setattr(tiers, "VENDOR", name)
        assert not tiers.left_out(request.node, "")


def test_what_is_exhaustive_runs_when_everything_does_or_when_it_is_asked_for(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.node.add_marker(pytest.mark.exhaustive)
    monkeypatch.setattr(tiers, "TIER", "")
    assert tiers.left_out(request.node, "")
    assert not tiers.left_out(request.node, "exhaustive")
    monkeypatch.setattr(tiers, "TIER", "all")
    assert not tiers.left_out(request.node, "")


@pytest.mark.django_db(transaction=True)
def test_what_a_test_has_committed_is_gone_and_permissions_stay() -> None:
    before = Permission.objects.count(), ContentType.objects.count()
    User.objects.create(username="root").user_permissions.set(Permission.objects.all())
    Order.objects.create(number="1")
    empty("default")
    assert not User.objects.exists()
    assert not User.user_permissions.through.objects.exists()
    assert not Order.objects.exists()
    assert (Permission.objects.count(), ContentType.objects.count()) == before
    assert all(before)


@pytest.mark.django_db(transaction=True)
def test_a_test_may_drop_a_table() -> None:
    Order.objects.create(number="1")
    with connection.schema_editor() as editor:
        editor.delete_model(Handled)
    try:
        empty("default")
        assert not Order.objects.exists()
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(Handled)


@pytest.mark.django_db(transaction=True)
def test_no_cache_remembers_what_was_emptied() -> None:
    send("orders", 1)
    assert topics._cache
    assert runtime_settings._cache
    case: Any = SimpleNamespace(_databases_names=lambda include_mirrors: ["default"])
    teardown(case)
    assert not topics._cache
    assert not runtime_settings._cache
    send("orders", 1)  # makes the topic anew: a stale id would name one that is gone


@pytest.mark.exhaustive
@pytest.mark.any_database
@pytest.mark.slow
def test_what_passes_only_at_the_second_try_is_named_and_may_be_refused(tmp_path: Path) -> None:
    (tmp_path / "test_second.py").write_text(SECOND_TRY)
    (tmp_path / "conftest.py").write_text(REPORTING)
    file, *words = str(tmp_path / "test_second.py"), "-c", "/dev/null", f"--rootdir={tmp_path}"
    both = Leg("both", Path(sys.executable), [file, *words])
    run_all([both], at_a_time=1, again=True)
    assert not both.passed(at_once=False)
    said = "\n".join(summary([both]))
    assert "::test_passes_at_the_second_try\n" in said
    assert "::test_fails (twice)\n" in said
    (tmp_path / "test_second.seen").unlink()
    leg = Leg("leg", Path(sys.executable), [f"{file}::test_passes_at_the_second_try", *words])
    run_all([leg], at_a_time=1, again=True)
    assert leg.passed(at_once=False)
    assert not leg.passed(at_once=True)
    assert "AT 2ND" in str(leg)
    assert [name.split("::")[1] for name in leg.report["failed"]] == [
        "test_passes_at_the_second_try"
    ]


def test_the_summary_says_on_what_and_how_long_and_the_slow_ones_are_kept(tmp_path: Path) -> None:
    report = {
        "on": {"Python": "3.11.7", "Django": "5.2.19", "MySQL": "9.7"},
        "seconds": {"tests/a/test_b.py::test_c": 2.0, "tests/a/test_b.py::test_d": 0.1},
        "failed": {"tests/a/test_b.py::test_d": "AssertionError: assert 1 == 2"},
        "skipped": 0,
    }
    leg = Leg("mysql", Path("python"), status=0, seconds=3.4, report=report)
    said = "\n".join(summary([leg]))
    assert "2.0  mysql      tests/a/test_b.py::test_c" in said
    assert "mysql      on Python 3.11.7, Django 5.2.19, MySQL 9.7" in said
    assert "mysql      passed        2       1        0        3" in said
    # Who sees only the end of a long output sees what failed.
    assert said.endswith("mysql: tests/a/test_b.py::test_d\n    AssertionError: assert 1 == 2")
    keep([leg], tmp_path / "durations.json", what="make test-all", minutes=0.06)
    kept = json.loads((tmp_path / "durations.json").read_text())["legs"]["mysql"]
    assert kept["slow"] == {"tests/a/test_b.py::test_c": 2.0}
    assert (kept["tests"], kept["folders"]) == (2, {"tests/a": 2.1})


def test_an_empty_suite_is_a_failure_and_an_empty_selection_is_not() -> None:
    assert not Leg("mysql", Path("python"), status=5).passed(at_once=True)
    assert Leg("mysql", Path("python"), status=5, may_be_empty=True).passed(at_once=True)


def test_servers_are_kept_in_memory_only_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(servers, "MEMORY", tmp_path)
    monkeypatch.setattr(servers, "available_memory", lambda: 64 * 2**30)
    for free, place in ((6 * 2**30, tmp_path), (6 * 2**30 - 1, servers.DISK)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(free))
        assert servers.memory_or_disk(3) == place
    monkeypatch.setattr(servers, "available_memory", lambda: 6 * 2**30 - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(6 * 2**30))
    assert servers.memory_or_disk(3) == servers.DISK
    monkeypatch.setattr(servers, "MEMORY", tmp_path / "nowhere")
    assert servers.memory_or_disk(1) == servers.DISK


def test_a_server_that_memory_is_too_small_for_is_prepared_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(servers, "MEMORY", memory)
    monkeypatch.setattr(servers, "DISK", disk)

    class Full(servers.Server):
        kind = "redis"

        def prepare(self) -> None:
            if self.folder.parent == memory:
                help_text = "; ".join(f"echo help {n}" for n in range(30))
                self._run("sh", "-c", f"echo ERROR no space left; {help_text}; exit 1")

    server = Full(packages.Programs(), memory)
    server.prepare_where_it_can_be()
    assert server.folder.parent == disk
    assert not list(memory.iterdir())
    assert "no space left" in capfd.readouterr().err, "the cause, which the log's end does not have"
    server.stop()


def test_folders_of_killed_processes_are_removed_and_no_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(servers, "MEMORY", tmp_path)
    monkeypatch.setattr(servers, "DISK", tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / f"ems-my-{ended.pid}-abc").mkdir()
    other = tmp_path / "ems-other"
    other.mkdir()
    server = servers.Redis(packages.Programs(), tmp_path)
    servers.remove_leftovers()
    assert set(tmp_path.iterdir()) == {other, server.folder}


def test_a_python_that_is_not_there_is_named() -> None:
    assert pythons.find(environments.PYTHON)
    assert pythons.find("2.0") is None


def test_a_django_without_its_python_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pythons, "find", lambda version: None)
    with pytest.raises(
        environments.Missing, match=r"no Python 3\.13 or 3\.14 .*on PATH or in pyenv"
    ):
        environments.of_django("6.1")
