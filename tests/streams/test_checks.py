"""Each system check: what provokes it, its id, and that it says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import ERROR, CheckMessage
from django.core.management import call_command
from django.db import OperationalError, connection, connections
from pytest_django import Settings

from streams import Outgoing, checks, consumer, runtime_settings, send_many
from streams.celery.alias import is_broker
from streams.checks import check_database, check_deployment, check_settings
from streams.consume import registry
from streams.consume.subscription import subscribe
from streams.errors import GroupMismatch
from streams.models import ConsumerGroup, SystemConfig, Topic
from streams.observe.mysql_server import Server
from tests.consuming import registered

ROOT = Path(__file__).resolve().parents[2]

on_a_server = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def utc(settings: Settings) -> None:
    settings.TIME_ZONE = "UTC"


def ids(messages: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in messages)
    return [str(message.id) for message in messages]


def only(messages: list[CheckMessage], id_: str) -> CheckMessage:
    """The message of this id, which must be there, once."""
    (found,) = [message for message in messages if message.id == id_]
    assert found.hint
    return found


# -- without a connection --


def test_nothing_is_wrong_with_the_settings_of_the_tests() -> None:
    assert check_settings() == []


def test_an_unknown_key_is_an_error_that_names_the_nearest(
    ems_settings: Callable[..., None],
) -> None:
    ems_settings(RETRY_DELAY=[1])
    message = only(check_settings(), "ems.E001")
    assert "'RETRY_DELAY'" in str(message.msg)
    assert "Did you mean 'RETRY_DELAYS'" in str(message.msg)


@pytest.mark.parametrize(
    "keys",
    [
        {"DATABASE": "nowhere"},
        {"REDIS": "nowhere"},
        {"POLL_SECONDS": 0},
        {"RETRY_DELAYS": []},
        {"STATE_DIR": ""},
        {"STATE_DIR": None},
    ],
)
def test_an_unknown_alias_or_a_wrong_value_is_an_error(
    ems_settings: Callable[..., None], keys: dict[str, Any]
) -> None:
    ems_settings(**keys)
    message = only(check_settings(), "ems.E001")
    assert next(iter(keys)) in str(message.msg)
    assert check_database(databases=["default"]) == []  # nothing can be said of it


@pytest.fixture
def broadcasts(clean_registry: None) -> None:
    consumer("prices", group="cache", mode="broadcast")(print)


@pytest.mark.usefixtures("broadcasts")
def test_a_state_dir_that_cannot_be_written_is_a_warning_if_a_broadcast_consumer_needs_it(
    tmp_path: Path, ems_settings: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ems_settings(STATE_DIR=str(tmp_path / "made" / "when" / "needed"))
    assert check_settings() == []
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "below"):
        ems_settings(STATE_DIR=str(wrong))
        message = only(check_settings(), "ems.W009")
        assert str(wrong) in str(message.msg)
        assert "cache" in str(message.msg)
    ems_settings(STATE_DIR=str(tmp_path))
    monkeypatch.setattr("os.access", lambda path, mode: mode == os.F_OK)
    assert ids(check_settings()) == ["ems.W009"]
    monkeypatch.setattr(registry, "_registered", {})
    assert check_settings() == []


@pytest.mark.usefixtures("clean_registry")
def test_a_relative_state_dir_is_a_warning_before_a_deployment_and_before_no_other_command(
    tmp_path: Path, ems_settings: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(name: str, using: str) -> None:
        raise OperationalError(2002, "no server")

    monkeypatch.setattr(checks, "system", unavailable)  # then only this is said
    ems_settings(STATE_DIR="ems-state")
    assert check_settings() == []  # it is the default, and every command would begin with it
    message = only(check_deployment(), "ems.W010")
    assert "how far the logs have come" in str(message.msg)  # also without a broadcast consumer
    ems_settings(STATE_DIR=str(tmp_path))
    assert check_deployment() == []


@pytest.mark.usefixtures("clean_registry")
def test_two_consumers_of_one_group_are_an_error(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    consumer("orders", group="mail")(print)
    (tmp_path / "rival").mkdir()
    (tmp_path / "rival" / "__init__.py").touch()
    (tmp_path / "rival" / "consumers.py").write_text(
        "from streams import consumer\nconsumer('orders', group='mail')(repr)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "rival"]
    assert "has a consumer already" in str(only(check_settings(), "ems.E001").msg)


@pytest.mark.parametrize(
    ("code", "place", "says"),
    [
        ("@consumer('orders', group='mail')\ndef announce():", "line 3, announce()", "one message"),
        (
            "@consumer('orders', group='mail',\n          batch=0)\nasync def announce(messages):",
            "line 3, announce()",
            "batch must be",
        ),
        ("@consumer('orders', 'mail')\ndef announce(message):", "line 3, announce()", "positional"),
        ("consumer('orders', group=' mail')(print)\ndef announce(message):", "line 3", "blanks"),
    ],
    ids=["signature", "option", "call", "no decorator"],
)
def test_a_consumer_that_cannot_be_registered_is_named_with_its_line(
    clean_registry: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    code: str,
    place: str,
    says: str,
) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "consumers.py").write_text(f"from streams import consumer\n\n{code}\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "shop"]
    message = only(check_settings(), "ems.E001")
    del sys.modules["shop"]
    assert str(message.msg).startswith(f"shop.consumers, {place}: ")
    assert says in str(message.msg)
    assert "def handle(message)" in str(message.hint)  # it stands without the pages
    assert "docs/" not in str(message.hint)


CHECK = """
import django
from django.core.checks import run_checks
django.setup()
print(*run_checks(databases=[]), sep="\\n")
"""


@pytest.mark.parametrize(("version", "is_enough"), [("1.1.3", False), ("1.2.0", True)])
def test_a_pymysql_that_connects_by_itself_is_an_error(
    monkeypatch: pytest.MonkeyPatch, version: str, is_enough: bool
) -> None:
    driver = ModuleType("pymysql")
    monkeypatch.setitem(sys.modules, "pymysql", driver)
    monkeypatch.setattr("streams.checks.metadata.version", lambda name: version)
    assert "ems.E040" not in ids(check_settings())  # mysqlclient is there, or none
    monkeypatch.setitem(sys.modules, "MySQLdb", driver)
    assert ("ems.E040" in ids(check_settings())) != is_enough


@pytest.mark.parametrize(
    "package", ["monitoring", pytest.param("sparkjobs", marks=pytest.mark.exhaustive)]
)
def test_a_package_of_the_project_that_hides_one_of_ems_is_a_warning(
    tmp_path: Path, package: str
) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    found = subprocess.run(
        [sys.executable, "-c", CHECK],  # without databases, which Django 6.1 checks by default
        cwd=tmp_path,  # comes first on the path, as the folder of manage.py does
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"(ems.W015) The package '{package}' of EMS is hidden" in found.stdout
    assert str(tmp_path / package) in found.stdout


def test_another_alias_than_default_is_a_warning(
    ems_settings: Callable[..., None], settings: Settings
) -> None:
    ems_settings(DATABASE="other")
    assert ids(check_settings()) == ["ems.W001", "ems.W007"]
    settings.DATABASE_ROUTERS = ["streams.routers.StreamsRouter"]
    assert ids(check_settings()) == ["ems.W001"]


@pytest.mark.parametrize("backend", ["locmem.LocMemCache", "redis.RedisCache"])
def test_a_cache_that_is_not_django_redis_is_an_error(
    ems_settings: Callable[..., None], settings: Settings, backend: str
) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "wakeups": {"BACKEND": f"django.core.cache.backends.{backend}", "LOCATION": "redis://x"},
    }
    ems_settings(REDIS="wakeups")
    hint = str(only(check_settings(), "ems.E002").hint)
    assert ("seen in one process only" in hint) == ("locmem" in backend)


def test_django_redis_that_is_not_installed_is_an_error(
    ems_settings: Callable[..., None], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "wakeups": {"BACKEND": checks.REDIS_BACKEND, "LOCATION": "redis://x"},
    }
    ems_settings(REDIS="wakeups")
    assert check_settings() == []
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert ids(check_settings()) == ["ems.E006"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("CELERY_TASK_SERIALIZER", "pickle"), ("CELERY_ACCEPT_CONTENT", ["json", "pickle"])],
)
def test_celery_that_takes_pickles_is_a_warning(settings: Settings, name: str, value: Any) -> None:
    setattr(settings, name, value)
    assert "pickle" in str(only(check_settings(), "ems.W002").msg)


def test_celery_that_is_configured_elsewhere_is_seen_too() -> None:
    celery = pytest.importorskip("celery")
    before = celery.current_app._get_current_object()
    try:
        celery.Celery("host", accept_content=["application/json", "yaml"]).set_current()
        assert "yaml" in str(only(check_settings(), "ems.W002").msg)
    finally:
        before.set_current()


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("ems://nowhere", {}, "names no database"),
        ("ems://", {"priority_steps": ["high"]}, "priority_steps"),
    ],
)
def test_a_broker_that_cannot_work_is_an_error(
    settings: Settings, url: str, options: dict[str, Any], said: str
) -> None:
    settings.CELERY_BROKER_URL = url
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = options
    assert said in str(only(check_settings(), "ems.E015").msg)


def test_a_broker_that_is_configured_elsewhere_is_seen_too() -> None:
    celery = pytest.importorskip("celery")
    before = celery.current_app._get_current_object()
    try:
        celery.Celery("host", broker="ems://nowhere").set_current()
        assert "nowhere" in str(only(check_settings(), "ems.E015").msg)
        assert is_broker()
    finally:
        before.set_current()


@pytest.mark.parametrize("url", ["ems://", "ems://other", "amqp://nowhere//", ["ems://"], None])
def test_a_broker_that_can_work_is_no_error(settings: Settings, url: Any) -> None:
    settings.CELERY_BROKER_URL = url
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 60, "priority_steps": [3, 6]}
    assert check_settings() == []


def test_sqlite_without_immediate_transactions_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = connections["default"].settings_dict
    monkeypatch.setattr(connections["default"], "vendor", "sqlite")
    in_memory = [False]
    monkeypatch.setattr(
        connections["default"], "is_in_memory_db", lambda: in_memory[0], raising=False
    )
    monkeypatch.setitem(given, "OPTIONS", {"timeout": 20})
    assert ids(check_settings()) == ["ems.W008"]
    in_memory[0] = True  # nobody shares it
    assert check_settings() == []


def test_another_kind_of_database_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "postgresql")
    assert ids(check_settings()) == ["ems.E011"]
    assert check_database(databases=["default"]) == []


# -- of the server --


@pytest.fixture
def session(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Connect anew as a project does whose OPTIONS are these."""
    given = connection.settings_dict

    def change(**options: Any) -> None:
        monkeypatch.setitem(given, "OPTIONS", {**given["OPTIONS"], **options})
        connection.close()

    yield change
    monkeypatch.undo()
    connection.close()


def server_checks() -> list[CheckMessage]:
    return check_database(databases=["default"])


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.django_db(databases=["default", "other"])
def test_nothing_is_wrong_with_the_servers_of_the_tests() -> None:
    assert check_database(databases=["default", "other"]) == []
    call_command("check", databases=["default", "other"])


@pytest.mark.mysql
def test_without_the_database_named_no_connection_is_used(django_db_blocker: Any) -> None:
    with django_db_blocker.block():
        assert check_database(databases=None) == []


class TestServer:
    pytestmark = on_a_server

    @pytest.mark.parametrize(
        ("is_mariadb", "version", "found"),
        [
            (True, (10, 5, 28), ["ems.E003"]),
            (True, (10, 6, 0), ["ems.W040"]),
            (True, (10, 10, 7), ["ems.W040"]),
            (True, (10, 11, 0), []),
            (False, (8, 0, 10), ["ems.E003"]),
            (False, (8, 0, 11), ["ems.W040"]),
            (False, (26, 7, 0), []),
        ],
    )
    def test_a_server_without_skip_locked_is_an_error_and_one_that_is_not_tested_a_warning(
        self, monkeypatch: pytest.MonkeyPatch, is_mariadb: bool, version: Any, found: list[str]
    ) -> None:
        real = Server("default").isolation
        monkeypatch.setattr(Server, "isolation", real)  # its variable is named after the kind
        monkeypatch.setattr(Server, "is_mariadb", is_mariadb)
        monkeypatch.setattr(Server, "version", version)
        assert ids(server_checks()) == found

    @pytest.mark.parametrize(
        ("log_bin", "format_", "found"),
        [(1, "STATEMENT", ["ems.E004"]), (1, "MIXED", []), (0, "STATEMENT", [])],
    )
    def test_a_binary_log_of_statements_is_an_error(
        self,
        session: Callable[..., None],
        monkeypatch: pytest.MonkeyPatch,
        log_bin: int,
        format_: str,
        found: list[str],
    ) -> None:
        session(init_command=f"SET SESSION binlog_format = '{format_}'")
        real = Server.variable
        monkeypatch.setattr(  # the servers of the tests keep no binary log
            Server, "variable", lambda s, name: log_bin if "log_bin" in name else real(s, name)
        )
        assert ids(server_checks()) == found

    def test_a_connection_that_is_not_utf8mb4_is_an_error(
        self, session: Callable[..., None]
    ) -> None:
        session(charset="latin1")
        assert ids(server_checks()) == ["ems.E005"]

    def test_tables_that_are_not_utf8mb4_are_an_error(self) -> None:
        change = "ALTER TABLE ems_client MODIFY client_id varchar(190)"
        execute(f"{change} CHARACTER SET latin1 NOT NULL")
        try:
            assert "ems_client.client_id" in str(only(server_checks(), "ems.E007").msg)
        finally:
            execute(f"{change} NOT NULL")  # as the migrations say it
        assert server_checks() == []

    def test_names_that_ignore_case_are_an_error(self) -> None:
        change = "ALTER TABLE ems_group MODIFY name varchar(127) CHARACTER SET utf8mb4 COLLATE"
        execute(f"{change} utf8mb4_general_ci NOT NULL")
        try:
            message = only(server_checks(), "ems.E008")
            assert str(message.msg).endswith(": ems_group.name.")
        finally:
            execute(f"{change} utf8mb4_bin NOT NULL")
        assert server_checks() == []

    def test_a_table_without_transactions_is_an_error(self) -> None:
        execute("ALTER TABLE ems_step ENGINE=MyISAM")
        try:
            assert str(only(server_checks(), "ems.E009").msg).endswith(": ems_step.")
        finally:
            execute("ALTER TABLE ems_step ENGINE=InnoDB")
        assert server_checks() == []

    @pytest.mark.parametrize(
        ("level", "found"),
        [
            ("read uncommitted", ["ems.E010"]),
            ("repeatable read", ["ems.W005"]),
            ("serializable", ["ems.W005"]),
            ("read committed", []),
        ],
    )
    def test_another_isolation_level_is_said(
        self, isolation_level: Callable[[str], None], level: str, found: list[str]
    ) -> None:
        isolation_level(level)
        assert ids(server_checks()) == found

    def test_packets_that_are_too_small_for_the_largest_message_are_a_warning(self) -> None:
        packet = Server("default").variable("max_allowed_packet")
        row = SystemConfig.objects.create(name="msgMaxSizeInBytes", value=packet // 2)
        runtime_settings.forget()
        assert server_checks() == []
        row.value = packet // 2 + 1
        row.save()
        runtime_settings.forget()
        assert ids(server_checks()) == ["ems.W003"]

    def test_a_session_that_is_not_strict_is_a_warning(self, session: Callable[..., None]) -> None:
        session(init_command="SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'")
        assert ids(server_checks()) == ["ems.W004"]
        session(init_command="SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
        assert server_checks() == []

    def test_a_time_zone_that_the_server_does_not_know_is_a_warning(
        self, settings: Settings
    ) -> None:
        settings.TIME_ZONE = "Europe/Zurich"  # the tables of the tests' servers are empty
        assert ids(server_checks()) == ["ems.W006"]
        settings.USE_TZ = False
        assert server_checks() == []

    def test_before_the_first_migrate_nothing_is_asked_of_the_tables(self) -> None:
        name = connection.settings_dict["NAME"]
        execute(f"CREATE DATABASE {name}_empty CHARACTER SET utf8mb4")
        try:
            connection.settings_dict["NAME"] = f"{name}_empty"
            connection.close()
            assert server_checks() == []
        finally:
            execute(f"DROP DATABASE {name}_empty")
            connection.settings_dict["NAME"] = name
            connection.close()

    @pytest.mark.django_db(transaction=True, databases=["default", "other"])
    def test_another_alias_that_has_the_tables_is_looked_at_too(self) -> None:
        options = connections["other"].settings_dict["OPTIONS"]
        options["isolation_level"] = "serializable"
        connections["other"].close()
        try:
            assert ids(check_database(databases=["default", "other"])) == ["ems.W005"]
        finally:
            del options["isolation_level"]
            connections["other"].close()


def test_a_project_that_only_installs_the_app_has_the_checks(spawn) -> None:
    code = """
from django.core.checks.registry import registry
print(sorted({check.__module__ for check in registry.registered_checks} & {"streams.checks"}))
"""
    assert spawn(code).succeed().strip() == "['streams.checks']"


# -- the registered consumers, beside their groups --


def says(id_: str) -> str:
    message = only(check_database(databases=["default"]), id_)
    assert message.level < ERROR  # migrate runs this check, and must not stop
    return f"{message.msg} {message.hint}"


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
def test_a_new_group_that_needs_a_start_is_a_warning_before_it_is_deployed() -> None:
    send_many([Outgoing("orders", n) for n in range(3)])
    consumer("orders", group="mail")(print)
    consumer("orders", group="told", start="latest")(print)
    consumer("orders", group="cache", mode="broadcast")(print)
    consumer("empty", group="mail")(print)
    said = says("ems.W011")
    assert all(part in said for part in ("mail on orders", "3 messages", "ago", "--start"))
    assert not ConsumerGroup.objects.exists()
    assert not Topic.objects.filter(name="empty").exists()
    subscribe(registered("orders", "mail"), "default", "earliest")
    assert "ems.W011" not in ids(check_database(databases=["default"]))


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(
    ("changed", "texts"),
    [
        ({"ordered": True}, ["ordered is True in @consumer, and False in the database"]),
        ({"mode": "broadcast"}, ["mode is broadcast in @consumer, and cluster in the database"]),
    ],
)
def test_a_changed_mode_is_a_warning_with_both_values_and_the_way_out(
    changed: dict[str, Any], texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer("orders", group="mail")(print)
    subscribe(registered("orders", "mail"), "default")
    monkeypatch.setattr(registry, "_registered", {})
    consumer("orders", group="mail", **changed)(print)
    said = says("ems.W012")
    assert all(text in said for text in (*texts, "mail on orders", "ems_groups delete"))
    with pytest.raises(GroupMismatch) as raised:
        subscribe(registered("orders", "mail"), "default")
    assert str(raised.value) == said


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
def test_a_missing_topic_is_a_warning_where_topics_are_not_created_by_use() -> None:
    consumer("orders", group="mail")(print)
    assert "ems.W013" not in ids(check_database(databases=["default"]))
    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    runtime_settings.forget()
    assert "ems_topics create orders" in says("ems.W013")
    runtime_settings.forget()


@pytest.mark.django_db(databases=["default", "other"])  # Django 6.1 checks all of them
def test_a_deployment_is_warned_of_topics_that_create_themselves() -> None:
    out = StringIO()
    call_command("check", "--deploy", "--tag", "ems", stderr=out)
    assert "ems.W014" in out.getvalue()
    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    runtime_settings.forget()
    assert check_deployment() == []
    runtime_settings.forget()


def test_a_deployment_check_without_a_database_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(name: str, using: str) -> None:
        raise OperationalError(2002, "no server")

    monkeypatch.setattr(checks, "system", unavailable)
    assert check_deployment() == []
