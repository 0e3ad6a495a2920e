"""The doctor: what is wrong with a running installation, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core import checks
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils.translation import gettext as _

from streams import maintenance, sql
from streams.models import Consumer, Delivery, Partition, Step, UtcNow
from streams.models.consumer import LEASE
from streams.registry import autodiscover, registrations
from streams.runtime.supervisor import KEEPER_CONNECTIONS
from streams.subscriptions import Overrides, threads

OK, WARNING, ERROR = "ok", "warning", "error"

# A step that has not run for so long has nobody to run it.
SILENT = LEASE
LONG_TRANSACTION = timedelta(minutes=5)
# Undo of so many changes makes scans over hot tables several times slower (measured: design §1).
LONG_HISTORY = 100_000
SKEW = timedelta(seconds=2)


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at."""

    level: str
    name: str
    text: str
    hint: str = ""


def examine(using: str) -> list[Diagnosis]:
    """Everything that can be seen from here; nothing but the schema if that is not this code's."""
    if problem := _schema(using):
        return [problem]
    return [
        Diagnosis(OK, "schema", _("All migrations are applied.")),
        *_checks(using),
        *_steps(using),
        *_leases(using),
        _clock(using),
        *_server(using),
    ]


def ready(using: str) -> list[Diagnosis]:
    """What a probe needs to know: the database answers, and its schema is this code's."""
    try:
        connections[using].ensure_connection()
    except DatabaseError as error:
        return [Diagnosis(ERROR, "database", str(error))]
    problem = _schema(using)
    return [problem or Diagnosis(OK, "schema", _("All migrations are applied."))]


def _schema(using: str) -> Diagnosis | None:
    executor = MigrationExecutor(connections[using])
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "ems"]
    missing = [str(migration) for migration, _back in executor.migration_plan(targets)]
    if not missing:
        return None
    hint = _("Run “manage.py migrate --database %s”.") % using
    return Diagnosis(ERROR, "schema", _("Not applied: %s") % ", ".join(missing), hint)


def _checks(using: str) -> Iterator[Diagnosis]:
    messages = checks.run_checks(tags=["ems"], databases=[using])
    for message in messages:
        level = ERROR if message.level >= checks.ERROR else WARNING
        yield Diagnosis(level, str(message.id), str(message.msg), str(message.hint or ""))
    if not messages:
        yield Diagnosis(OK, "checks", _("Settings and server are as they should be."))


def silence(name: str, using: str) -> timedelta | None:
    """How long ago the step last ran; None if it never has."""
    step = Step.objects.using(using).filter(name=name).annotate(now=UtcNow())
    row = step.values_list("now", "last_run_at").first()
    return None if row is None else row[0] - row[1]


def _steps(using: str) -> Iterator[Diagnosis]:
    hint = _("Run ems_consume, or Celery beat with streams.schedule.SCHEDULE.")
    for name in (maintenance.SEQUENCE, maintenance.SWEEP):
        since = silence(name, using)
        if since is None:
            yield Diagnosis(ERROR, name, _("This step has never run."), hint)
        elif since > SILENT:
            text = _("This step has not run for %d s.") % since.total_seconds()
            yield Diagnosis(ERROR, name, text, hint)
        else:
            yield Diagnosis(OK, name, _("ran %.1f s ago") % since.total_seconds())


def _leases(using: str) -> Iterator[Diagnosis]:
    live = Consumer.objects.using(using).live().values("client_id").distinct().count()
    behind = Partition.objects.using(using).filter(next_offset__gt=0).exists()
    if not live and behind:
        yield Diagnosis(WARNING, "consumers", _("No consumer is running."), _("Run ems_consume."))
    else:
        yield Diagnosis(OK, "consumers", _("%d live") % live)
    stuck = Delivery.objects.using(using).open().filter(deadline__lt=UtcNow(-2 * LEASE)).count()
    if stuck:
        text = _("%d deliveries are past their deadline and have not been swept.") % stuck
        yield Diagnosis(ERROR, "leases", text, _("See whether the step “sweep” runs, and its log."))


def _clock(using: str) -> Diagnosis:
    vendor = connections[using].vendor
    ((now,),) = _rows(using, f"SELECT {sql.NOW[vendor]}")
    if isinstance(now, str):  # SQLite
        now = datetime.fromisoformat(now)
    skew = now.replace(tzinfo=UTC) - datetime.now(UTC)
    text = _("The database's clock is %+.1f s from this host's.") % skew.total_seconds()
    if abs(skew) > SKEW:
        hint = _("EMS uses only the database's; run NTP on both, or times in logs mislead.")
        return Diagnosis(WARNING, "clock", text, hint)
    return Diagnosis(OK, "clock", text)


def _server(using: str) -> Iterator[Diagnosis]:
    connection: Any = connections[using]
    if connection.vendor != "mysql":
        yield Diagnosis(OK, "server", f"{connection.display_name}")
        return
    yield Diagnosis(OK, "server", connection.mysql_server_info)
    autodiscover()
    budget = KEEPER_CONNECTIONS + sum(
        threads(registration, using, Overrides()) for registration in registrations()
    )
    ((limit,),) = _rows(using, "SELECT @@max_connections")
    ((used,),) = _rows(using, "SELECT COUNT(*) FROM information_schema.PROCESSLIST")
    text = _(
        "A consumer of all groups uses up to %(budget)d connections;"
        " %(used)d of %(limit)d are in use."
    ) % {"budget": budget, "used": used, "limit": limit}
    enough = used + budget <= limit
    hint = "" if enough else _("Fewer threads (--threads), or a higher max_connections.")
    yield Diagnosis(OK if enough else WARNING, "connections", text, hint)
    yield from _transactions(using)


def _transactions(using: str) -> Iterator[Diagnosis]:
    """Old snapshots make the server keep, and scans step over, what was changed since."""
    try:
        ((oldest,),) = _rows(
            using,
            "SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0)"
            " FROM information_schema.INNODB_TRX",
        )
        history = _rows(
            using,
            "SELECT `COUNT` FROM information_schema.INNODB_METRICS"
            " WHERE NAME = 'trx_rseg_history_len'",
        )
    except DatabaseError:
        text = _("The oldest transaction is not to be seen.")
        yield Diagnosis(WARNING, "transactions", text, _("Grant PROCESS to this account."))
        return
    length = history[0][0] if history else 0
    text = _("The oldest open transaction is %(oldest)d s old; history list: %(length)d.")
    text %= {"oldest": oldest, "length": length}
    bad = oldest > LONG_TRANSACTION.total_seconds() or length > LONG_HISTORY
    hint = _("Find it in information_schema.INNODB_TRX and end it.") if bad else ""
    yield Diagnosis(WARNING if bad else OK, "transactions", text, hint)


def _rows(using: str, statement: str) -> list[Any]:
    with connections[using].cursor() as cursor:
        cursor.execute(statement, ())
        return list(cursor.fetchall())
