"""System checks: what would make EMS misbehave, said before it does.

``manage.py check --database default`` runs them all; without ``--database`` those that need no
connection. docs/operations.md says what each means and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - Django's name
from django.db import connections
from django.utils.translation import gettext as _

from streams.conf import settings, system
from streams.errors import StreamsError
from streams.registry import autodiscover

MARIADB_AT_LEAST, MYSQL_AT_LEAST = (10, 6), (8, 0, 11)
REDIS_BACKEND = "django_redis.cache.RedisCache"


@register("ems")
def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """What can be seen without a connection."""
    try:
        current = settings()
        autodiscover()
    except (StreamsError, TypeError) as error:
        hint = _("See docs/settings.md, and the consumers.py of your apps.")
        return [Error(str(error), hint=hint, id="ems.E001")]
    found: list[CheckMessage] = []
    if current.DATABASE != "default":
        found.append(
            Warning(
                _("EMS is on %r: a send is not part of transactions on other databases.")
                % current.DATABASE,
                hint=_("Keep EMS in the database whose writes it goes with, if you can."),
                id="ems.W001",
            )
        )
    backend = django_settings.CACHES[current.REDIS]["BACKEND"] if current.REDIS else REDIS_BACKEND
    if backend != REDIS_BACKEND:
        found.append(
            Error(
                _("EMS['REDIS'] names a cache with the backend %s.") % backend,
                hint=_("Wake-ups between processes need %s.") % REDIS_BACKEND,
                id="ems.E002",
            )
        )
    serializer = getattr(django_settings, "CELERY_TASK_SERIALIZER", "json")
    if serializer != "json":
        found.append(
            Warning(
                _("CELERY_TASK_SERIALIZER is %r.") % serializer,
                hint=_("With anything but json, whoever can write to the broker can run code."),
                id="ems.W002",
            )
        )
    return found


@register("ems", "database")
def check_database(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """What the server of EMS["DATABASE"] says of itself."""
    if any(message.id == "ems.E001" for message in check_settings()):
        return []
    alias = settings().DATABASE
    if alias not in (databases or ()) or connections[alias].vendor != "mysql":
        return []
    return list(_server(alias))


def _server(alias: str) -> Iterator[CheckMessage]:
    connection: Any = connections[alias]

    def read(variable: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT @@{variable}")
            return cursor.fetchone()[0]

    is_mariadb = connection.mysql_is_mariadb
    least = MARIADB_AT_LEAST if is_mariadb else MYSQL_AT_LEAST
    if connection.mysql_version < least:
        yield Error(
            _("The server of %(alias)r is %(version)s.")
            % {"alias": alias, "version": connection.mysql_server_info},
            hint=_("EMS needs MariaDB 10.6 or MySQL 8.0.11: FOR UPDATE SKIP LOCKED."),
            id="ems.E003",
        )
    if read("GLOBAL.log_bin") and read("GLOBAL.binlog_format") == "STATEMENT":
        yield Error(
            _("%r has binlog_format=STATEMENT, which forbids READ COMMITTED.") % alias,
            hint=_("Set binlog_format=ROW."),
            id="ems.E004",
        )
    if not str(read("character_set_connection")).startswith("utf8mb4"):
        yield Error(
            _("The connection to %r is not utf8mb4: not every text can be sent.") % alias,
            hint=_("OPTIONS: {'charset': 'utf8mb4'}, and tables of that character set."),
            id="ems.E005",
        )
    # Escaped in a statement, a body of bytes may double.
    limit, packet = system("msgMaxSizeInBytes", alias), int(read("max_allowed_packet"))
    if packet < 2 * limit:
        yield Warning(
            _("max_allowed_packet is %(packet)d; a message may have %(limit)d bytes.")
            % {"packet": packet, "limit": limit},
            hint=_("Raise it to twice msgMaxSizeInBytes, or lower that."),
            id="ems.W003",
        )
    if not {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"} & set(str(read("sql_mode")).split(",")):
        yield Warning(
            _("%r is not in strict mode: values may be cut silently.") % alias,
            hint=_("Add STRICT_TRANS_TABLES to sql_mode."),
            id="ems.W004",
        )
    isolation = read("tx_isolation" if is_mariadb else "transaction_isolation")
    if isolation != "READ-COMMITTED":
        yield Warning(
            _("The connections to %(alias)r run at %(isolation)s.")
            % {"alias": alias, "isolation": isolation},
            hint=_(
                "EMS sets READ COMMITTED for its own transactions; making it the project's level"
                " (Django's default) saves a statement each."
            ),
            id="ems.W005",
        )
    if django_settings.USE_TZ and django_settings.TIME_ZONE != "UTC":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT CONVERT_TZ('2000-01-01', 'UTC', %s)", [django_settings.TIME_ZONE]
            )
            if cursor.fetchone()[0] is None:
                yield Warning(
                    _("The time zone tables of %r are empty.") % alias,
                    hint=_("Load them with mysql_tzinfo_to_sql: filters by date fail without."),
                    id="ems.W006",
                )
