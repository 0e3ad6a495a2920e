"""Runs the system checks, which report what would make EMS fail before it does.

``manage.py check --database default`` runs them all; without ``--database`` those that need no
connection. docs/reference/checks.md says what each means and what to do.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from importlib import import_module, metadata
from importlib.util import find_spec
from linecache import getlines
from pathlib import Path
from traceback import walk_tb
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - Django's name
from django.db import DatabaseError, connections, router

from streams.celery.alias import configured, is_broker
from streams.celery.naming import Naming
from streams.conf import DEFAULTS, Settings, load, settings, working_on
from streams.consume.middleware import middleware
from streams.consume.registry import Order, autodiscover, by_alias, registrations
from streams.consume.subscription import (
    mismatch,
    mismatch_hint,
    needs_start,
    start_hint,
    start_missing,
)
from streams.errors import ConfigurationError, StreamsError
from streams.log.holdings import holdings
from streams.log.routes import differ, routes_agree
from streams.log.routes import hint as routes_hint
from streams.metrics.series import MANY_SERIES, series_of_tables
from streams.models import ConsumerGroup, Mode, Topic
from streams.observe.mysql_server import Server, missing_tables
from streams.observe.replication import Replication
from streams.observe.tested_servers import KINDS, MARIADB, MYSQL, text
from streams.relays.relay import has_kombu, is_relay
from streams.release import documentation
from streams.runtime_settings import system
from streams.sharding import aliases

VENDORS = ("mysql", "sqlite")
PYMYSQL_AT_LEAST = (1, 2)
REDIS_BACKEND = "django_redis.cache.RedisCache"
ROUTER = "streams.routers.StreamsRouter"
# What a request has beside the body of its message: the other fields, and the JSON around them.
AROUND_A_BODY = 64 * 1024
SAFE = {"json", "application/json"}


@register("ems")
def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check what needs no connection."""
    try:
        partitioner = settings().PARTITIONER
        if partitioner is not None:
            load(partitioner, "PARTITIONER")
        middleware()
    except (StreamsError, TypeError) as error:
        hint = "EMS is a dict in the settings of the project. Its keys are %s."
        keys = ", ".join(field.name for field in fields(Settings))
        return [Error(str(error), hint=hint % keys, id="ems.E001")]
    try:
        autodiscover()
    except (StreamsError, TypeError) as error:
        hint = (
            "A handler is a function that takes one message: @consumer('orders', group='mail')"
            " above def handle(message). With batch=10 it takes a list of at most 10 messages."
        )
        return [Error(f"{_place(error)}: {error}", hint=hint, id="ems.E001")]
    return [
        *(message for alias in aliases() for message in _alias(alias)),
        *_redis(settings().REDIS),
        *_state_dir(Path(settings().STATE_DIR)),
        *_enabled(),
        *_celery(),
        *_driver(),
        *_broker(),
        *_shadows(),
        *_relays(),
    ]


def _relays() -> Iterator[CheckMessage]:
    names = sorted(f"{one.group} on {one.topic}" for one in registrations() if is_relay(one))
    if names and not has_kombu():
        yield Warning(
            f"kombu is not installed: these relays publish nothing: {', '.join(names)}.",
            hint="Run “pip install django-ems[relay]”.",
            id="ems.W027",
        )


def _enabled() -> Iterator[CheckMessage]:
    if not settings().ENABLED:
        yield Warning(
            "EMS is off in this process: it neither sends nor consumes.",
            hint="If that is not meant, take EMS['ENABLED'] = False out of the settings.",
            id="ems.W023",
        )


def _is_misconfigured() -> bool:
    """Tell whether the settings cannot be read, so that nothing that depends on them is checked."""
    return any(message.id in ("ems.E001", "ems.E011") for message in check_settings())


@register("ems", "database")
def check_database(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check the servers that have tables of EMS, or will have them, and the groups in them."""
    if _is_misconfigured():
        return []
    found: list[CheckMessage] = []
    for alias in databases or ():
        # Before the first migrate there are no tables, and so no run-time settings and no groups.
        migrated = not missing_tables(alias)
        if migrated:
            found += [*_routes(alias), *_consumers(alias)]
        if connections[alias].vendor == "mysql" and (migrated or alias in aliases()):
            server = Server(alias)
            limit = DEFAULTS["msgMaxSizeInBytes"]
            if migrated:
                limit = system("msgMaxSizeInBytes", alias)
            found += _must(server)
            if not any(message.id == "ems.E013" for message in found):
                found += [*_should(server, limit), *_replicated(server)]
        if migrated and find_spec("prometheus_client"):
            found += _series(alias)
    return found


@register("ems", "database")
def check_http(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check that the largest message can be sent over HTTP, where the project has mounted it."""
    if _is_misconfigured():
        return []
    most: Any = django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE  # None: any
    asked = [alias for alias in aliases() if alias in (databases or ())]
    if not asked or most is None or not _serves_http():
        return []
    limits = [system("msgMaxSizeInBytes", one) for one in asked if not missing_tables(one)]
    if not limits:
        return []
    limit = max(limits)
    needed = limit * 4 // 3 + AROUND_A_BODY
    if most >= needed:
        return []
    return [
        Warning(
            f"DATA_UPLOAD_MAX_MEMORY_SIZE is {most}; a message may have {limit} bytes.",
            hint=f"Raise it to {needed}: in a request, Base64 makes a body a third larger.",
            id="ems.W022",
        )
    ]


@register("ems", deploy=True)
def check_deployment(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check what is good for development only; of the database nothing if it is away."""
    if _is_misconfigured():
        return []
    return [*_relative(Path(settings().STATE_DIR)), *_auto_create()]


def _relative(directory: Path) -> Iterator[CheckMessage]:
    if not directory.is_absolute():
        yield Warning(
            f"EMS['STATE_DIR'] {directory} is relative; how far the logs have come is kept there.",
            hint=(
                "Make it absolute: started from another folder, a process does not notice a"
                " restored backup, and a broadcast client begins as a new one, and misses what has"
                " come meanwhile."
            ),
            id="ems.W010",
        )


def _auto_create() -> Iterator[CheckMessage]:
    try:
        creates = any(system("autoCreateTopic", alias) for alias in aliases())
    except DatabaseError:
        return
    if creates:
        yield Warning(
            "autoCreateTopic is on: a misspelt name in send() makes a topic that nobody reads.",
            hint=(
                "In production turn it off in the system settings of the admin, and create topics"
                " with ems_topics create."
            ),
            id="ems.W014",
        )


def _serves_http() -> bool:
    """Tell whether the URLs of the project have those of EMS. Django checks the URLs themselves."""
    if find_spec("ninja") is None:
        return False
    with suppress(Exception):
        import_module(django_settings.ROOT_URLCONF)
    return "streams.http.urls" in sys.modules


def _place(error: Exception) -> str:
    """Return the module, the line and the decorated function in which ``error`` was raised."""
    frames = [
        (frame, line)
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] != "streams"
    ]
    frame, line = frames[-1]
    place = f"{frame.f_globals['__name__']}, line {line}"
    for node in ast.walk(ast.parse("".join(getlines(frame.f_code.co_filename)))):
        decorators = getattr(node, "decorator_list", ())
        if any(one.lineno <= line <= (one.end_lineno or line) for one in decorators):
            return f"{place}, {getattr(node, 'name', '')}()"
    return place


def _alias(alias: str) -> Iterator[CheckMessage]:
    vendor = connections[alias].vendor
    if vendor not in VENDORS:
        yield Error(
            f"EMS is on {alias!r}, a database of the kind {vendor}.",
            hint="EMS needs MySQL, MariaDB, or for development SQLite.",
            id="ems.E011",
        )
    if alias != "default" and alias == settings().DATABASE:
        yield Warning(
            f"EMS is on {alias!r}: a send is not part of transactions on other databases.",
            hint="Keep EMS in the database whose writes it goes with, if you can.",
            id="ems.W001",
        )
    if alias != "default" and not _is_routed(alias):
        yield Warning(
            f"EMS is on {alias!r}, and no router of EMS says so to migrate and the admin.",
            hint=f"DATABASE_ROUTERS = [{ROUTER!r}], unless a router of yours does it.",
            id="ems.W007",
        )
    given = connections[alias].settings_dict
    shared = vendor == "sqlite" and not connections[alias].is_in_memory_db()  # type: ignore[attr-defined]
    if shared and given["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
        yield Warning(
            f"{alias!r} is SQLite without transaction_mode IMMEDIATE.",
            hint=(
                "OPTIONS: {'transaction_mode': 'IMMEDIATE', 'timeout': 20}. Without it two"
                " transactions that have both read fail with “database is locked”."
            ),
            id="ems.W008",
        )


def _is_routed(alias: str) -> bool:
    with working_on(alias):
        routed = router.db_for_write(Topic) == alias
    return routed and router.allow_migrate_model(alias, Topic)


def _routes(alias: str) -> Iterator[CheckMessage]:
    if alias in aliases() and routes_agree(alias) is False:
        yield Error(differ(alias), hint=routes_hint(), id="ems.E014")


def _redis(cache: str | None) -> Iterator[CheckMessage]:
    if cache is None:
        return
    backend = django_settings.CACHES[cache]["BACKEND"]
    if backend != REDIS_BACKEND:
        hint = "Wake-ups go from process to process: they need %s, or None to do without."
        if backend.endswith(("LocMemCache", "DummyCache")):
            hint = "It is seen in one process only. " + hint
        yield Error(
            f"EMS['REDIS'] names the cache {cache!r}, whose backend is {backend}.",
            hint=hint % REDIS_BACKEND,
            id="ems.E002",
        )
    elif find_spec("django_redis") is None:
        yield Error(
            f"EMS['REDIS'] names the cache {cache!r}, and django-redis is not installed.",
            hint="pip install django-ems[redis], or set it to None.",
            id="ems.E006",
        )


def _state_dir(directory: Path) -> Iterator[CheckMessage]:
    """Yield only warnings: other processes of the project may not need the folder or have it."""
    if not (groups := _listening()):
        return
    above = (directory, *directory.absolute().parents)
    there = next(path for path in above if os.access(path, os.F_OK))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        yield Warning(
            (
                f"EMS['STATE_DIR'] {directory} cannot be written; positions of {groups} go there,"
                " and"
                " how far the logs have come."
            ),
            hint=(
                "A folder on a disk that stays, of the user that runs ems_consume. Nothing is to be"
                " done where no consumer runs, no offset is given, and nobody pulls over HTTP."
            ),
            id="ems.W009",
        )


def _listening() -> str:
    """Return the names of the broadcast groups that are registered."""
    registered = (r.group for r in registrations() if r.mode == Mode.BROADCAST)
    return ", ".join(sorted(set(registered)))


def _celery() -> Iterator[CheckMessage]:
    named = {
        getattr(django_settings, "CELERY_TASK_SERIALIZER", "json"),
        *(getattr(django_settings, "CELERY_ACCEPT_CONTENT", None) or ()),
    }
    if "celery" in sys.modules:  # its configuration may not be in Django's settings
        from celery import current_app

        named |= {current_app.conf.task_serializer, *current_app.conf.accept_content}
    if named - SAFE:
        yield Warning(
            f"Celery takes more than JSON: {', '.join(sorted(named - SAFE))}.",
            hint=(
                "CELERY_TASK_SERIALIZER = 'json' and CELERY_ACCEPT_CONTENT = ['json']. With pickle,"
                " whoever can write to the broker can run code."
            ),
            id="ems.W002",
        )


def _driver() -> Iterator[CheckMessage]:
    """Yield an error if PyMySQL stands for mysqlclient, and would connect anew by itself."""
    driver = sys.modules.get("MySQLdb")
    if driver is None or driver is not sys.modules.get("pymysql"):
        return
    version = metadata.version("PyMySQL")
    if tuple(map(int, version.split(".")[:2])) < PYMYSQL_AT_LEAST:
        yield Error(
            f"PyMySQL is {version}: after a lost connection it opens another one by itself, which"
            " is not at READ COMMITTED.",
            hint=f"EMS needs PyMySQL {text(PYMYSQL_AT_LEAST)}: pip install django-ems[pymysql].",
            id="ems.E040",
        )


def _broker() -> Iterator[CheckMessage]:
    """Yield an error if Celery's broker is EMS, on a database or with options that it cannot be."""
    if not is_broker():
        return
    url, options = configured()
    try:
        Naming.of(urlsplit(url).hostname, options)
    except ConfigurationError as error:
        yield Error(
            f"Celery cannot have EMS as its broker: {error}",
            hint=(
                "CELERY_BROKER_URL = 'ems://', or 'ems://alias' for the tables on another alias."
                " CELERY_BROKER_TRANSPORT_OPTIONS = {'priority_steps': [3, 6]} gives each of these"
                " priorities a topic."
            ),
            id="ems.E015",
        )


def _shadows() -> Iterator[CheckMessage]:
    """Yield a warning for each package of EMS in whose place Python finds another one.

    Packages of the project come first on Python's path, and the app "monitoring" would be theirs.
    """
    if not apps.is_installed("monitoring"):
        return
    ours = Path(__file__).resolve().parent.parent
    for package in ("monitoring", "sparkjobs"):
        spec = find_spec(package)
        folder = next(iter((spec and spec.submodule_search_locations) or ()), None)
        if folder is None or Path(folder).resolve().parent == ours:
            continue
        yield Warning(
            f"The package {package!r} of EMS is hidden by another one, in {folder}.",
            hint=(
                "EMS's figures, the command ems_spark and its jobs are not there. Rename that"
                " package, or silence this warning if it is what INSTALLED_APPS means."
            ),
            id="ems.W015",
        )


def _consumers(alias: str) -> Iterator[CheckMessage]:
    """Yield which registered consumers ems_consume would leave out.

    Only warnings, since migrate runs this check; and only columns that are in the first migration,
    since it runs before it.
    """
    topics = dict(Topic.objects.using(alias).values_list("name", "pk"))
    columns = ("topic__name", "name", "mode", "ordered", "by_key")
    rows = ConsumerGroup.objects.using(alias).values_list(*columns)
    groups: dict[tuple[str, str], tuple[str, Order]] = {
        (topic, name): (mode, "key" if by_key else ordered)
        for topic, name, mode, ordered, by_key in rows
    }
    creates = system("autoCreateTopic", alias)
    for registration in by_alias(registrations(), alias).get(alias, []):
        if found := groups.get((registration.topic, registration.group)):
            if text := mismatch(registration, *found):
                yield Warning(text, hint=mismatch_hint(), id="ems.W012")
        elif registration.topic in topics:
            if needs_start(registration):
                held = holdings(topics[registration.topic], alias)
                if held.messages:
                    text = start_missing(registration, held)
                    yield Warning(text, hint=start_hint(), id="ems.W011")
        elif not creates:
            yield Warning(
                f"Group {registration.group}: there is no topic {registration.topic}, and"
                " autoCreateTopic is off.",
                hint=f"ems_topics create {registration.topic}",
                id="ems.W013",
            )


def _series(alias: str) -> Iterator[CheckMessage]:
    """Yield a warning if the metrics of the tables are more than a scraper should get."""
    series = series_of_tables(alias)
    if series > MANY_SERIES:
        yield Warning(
            f"The metrics of {alias} have about {series:,} series for each scrape.",
            hint=(
                "Scrape less often, or drop ems_claimed_messages_total, which has a series for each"
                " group and partition, by metric_relabel_configs."
            ),
            id="ems.W021",
        )


def _must(server: Server) -> Iterator[CheckMessage]:
    if kind := server.without_row_locks():
        yield Error(
            f"The server of {server.alias!r} is {kind}, on which EMS would lose and repeat"
            " messages.",
            hint=(
                "It takes no lock for FOR UPDATE SKIP LOCKED, or refuses it: two consumers would"
                " claim the same messages. Use MySQL or MariaDB."
            ),
            id="ems.E013",
        )
        return
    known = MARIADB if server.is_mariadb else MYSQL
    if server.version < known.oldest:
        needed = " or ".join(f"{one.name} {text(one.oldest)}" for one in KINDS)
        yield Error(
            f"The server of {server.alias!r} is {server.name}.",
            hint=f"EMS needs {needed}: FOR UPDATE SKIP LOCKED.",
            id="ems.E003",
        )
    elif known.is_untested(server.version):
        yield Warning(
            f"The server of {server.alias!r} is {server.name}, on which EMS is not tested.",
            hint=(
                f"EMS is tested on {known}, and uses nothing that {text(known.oldest)} does not"
                " have. Try your own tests on it, or upgrade the server."
            ),
            id="ems.W040",
        )
    if server.binlog_format == "STATEMENT":
        yield Error(
            f"{server.alias!r} has binlog_format=STATEMENT, which forbids READ COMMITTED.",
            hint="Set binlog_format=ROW.",
            id="ems.E004",
        )
    if server.variable("character_set_connection") != "utf8mb4":
        yield Error(
            f"The connection to {server.alias!r} is not utf8mb4: not every text can be sent.",
            hint="OPTIONS: {'charset': 'utf8mb4'}",
            id="ems.E005",
        )
    if columns := server.columns_not_utf8mb4():
        yield Error(
            f"Columns on {server.alias!r} are not utf8mb4: {', '.join(columns)}.",
            hint=(
                "A text that they cannot hold stops its consumer. ALTER TABLE … MODIFY each with"
                " CHARACTER SET utf8mb4; names and keys with COLLATE utf8mb4_bin."
            ),
            id="ems.E007",
        )
    if columns := server.names_not_binary():
        yield Error(
            f"Names on {server.alias!r} do not compare byte for byte: {', '.join(columns)}.",
            hint=(
                "“Mail” and “mail” would be one group. ALTER TABLE … MODIFY each with CHARACTER SET"
                " utf8mb4 COLLATE utf8mb4_bin."
            ),
            id="ems.E008",
        )
    if tables := server.tables_not_innodb():
        yield Error(
            f"Tables on {server.alias!r} have no transactions: {', '.join(tables)}.",
            hint="ALTER TABLE … ENGINE=InnoDB.",
            id="ems.E009",
        )
    if server.isolation == "READ-UNCOMMITTED":
        yield Error(
            f"The connections to {server.alias!r} read what is not committed.",
            hint="Leave out OPTIONS['isolation_level']: Django's default is right.",
            id="ems.E010",
        )


def _should(server: Server, limit: int) -> Iterator[CheckMessage]:
    # A body of bytes that is escaped in a statement may double in size.
    packet = int(server.variable("max_allowed_packet"))
    if packet < 2 * limit:
        yield Warning(
            f"max_allowed_packet is {packet}; a message may have {limit} bytes.",
            hint="Raise it to twice msgMaxSizeInBytes, or lower that.",
            id="ems.W003",
        )
    modes = set(str(server.variable("sql_mode")).split(","))
    if not modes & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}:
        yield Warning(
            f"{server.alias!r} is not in strict mode: values may be cut silently.",
            hint="Add STRICT_TRANS_TABLES to sql_mode.",
            id="ems.W004",
        )
    if server.isolation not in ("READ-COMMITTED", "READ-UNCOMMITTED"):
        yield Warning(
            f"The connections to {server.alias!r} run at {server.isolation}.",
            hint=(
                "EMS sets READ COMMITTED for its own transactions; making it the project's level"
                " (Django's default) saves a statement each."
            ),
            id="ems.W005",
        )
    zone = django_settings.TIME_ZONE
    if django_settings.USE_TZ and zone != "UTC" and not server.knows_zone(zone):
        yield Warning(
            f"The server of {server.alias!r} does not know the time zone {zone}.",
            hint="Load its tables with mysql_tzinfo_to_sql: filters by date fail without.",
            id="ems.W006",
        )


def _replicated(server: Server) -> Iterator[CheckMessage]:
    """Yield how the replication of the server may lose the order of messages, or messages."""
    replication = Replication(server)
    if replication.has_several_primaries:
        yield Warning(
            f"{server.alias!r} is a member of a replication group with several primaries.",
            hint=(
                "Order between them is not kept, and EMS's locks hold in one server only: write to"
                " one of them, or set group_replication_single_primary_mode."
            ),
            id="ems.W017",
        )
    elif replication.is_galera and (others := _aliases_of_the_same(server)):
        yield Warning(
            f"{server.alias!r} is a node of Galera, and so may be {', '.join(others)}.",
            hint=(
                "Order between nodes is not kept, and EMS's locks hold in one node only: write to"
                " one of them. Nothing needs to be done if the other aliases only read."
            ),
            id="ems.W017",
        )
    if reasons := list(replication.degrading()):
        yield Warning(
            f"A failover of {server.alias!r} may lose commits, though it is semi-synchronous:"
            f" {'; '.join(reason.text for reason in reasons)}.",
            hint=(
                f"Set {', '.join(reason.hint for reason in reasons)}. Before that, connect the"
                f" replica: {documentation('guides/failover.md')} says why."
            ),
            id="ems.W018",
        )


def _aliases_of_the_same(server: Server) -> list[str]:
    """Return the other aliases for a database of the same name on another address."""

    def place(alias: str) -> tuple[str, str]:
        given = connections[alias].settings_dict
        return str(given["HOST"]), str(given["PORT"])

    mine = connections[server.alias].settings_dict["NAME"]
    return [
        alias
        for alias in connections
        if connections[alias].vendor == "mysql"
        and connections[alias].settings_dict["NAME"] == mine
        and place(alias) != place(server.alias)
    ]
