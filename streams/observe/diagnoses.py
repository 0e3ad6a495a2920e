"""Makes the diagnoses of the doctor: one function for each subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.core import checks
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Exists, OuterRef

from streams.conf import KEEPER_CONNECTIONS, settings
from streams.consume.limits import pool_size, shares, threads
from streams.consume.registry import autodiscover, by_alias, registrations
from streams.database.binary_log import bodies_left_out
from streams.database.clock import database_now
from streams.database.sql import sequence as sql
from streams.database.sql.dialect import fetch
from streams.log.condition import Trouble
from streams.log.foreign import other_namespaces, own_rows, unread_here
from streams.log.standings import standings
from streams.models import (
    Consumer,
    ConsumerGroup,
    Delivery,
    Message,
    Partition,
    Step,
    Topic,
    UtcNow,
    step,
)
from streams.models.consumer import LEASE
from streams.models.namespaces import own
from streams.observe.mysql_server import Server, missing_tables
from streams.observe.topics import damaged, unread
from streams.plural import plural
from streams.retain.abandoned_groups import abandoned
from streams.retain.held_back import held_back
from streams.retain.purge_floor import READER
from streams.retain.rule import WITHOUT_OWN_RULE, default_rule
from streams.two_phase.pausing import may_check

OK, WARNING, ERROR = "ok", "warning", "error"

# When a step has not run for this long, no process runs it.
SILENT = LEASE

LONG_TRANSACTION = timedelta(minutes=5)

# With so many changes kept, a look steps over as many entries, for 0.15 s and more (measured).
LONG_HISTORY = 100_000

SKEW = timedelta(seconds=2)

# The purge is due every night: after this long without one, something is wrong.
NOT_PURGED = timedelta(days=3)

# Rows that are only shown are counted up to this number.
COUNT_AT_MOST = 10_000

# Names of topics that one line lists.
NAMES_AT_MOST = 5


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at: its level, a text, and a hint what to do."""

    level: str
    name: str
    text: str
    hint: str = ""


def schema(using: str) -> Iterator[Diagnosis]:
    executor = MigrationExecutor(connections[using])
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "ems"]
    missing = [str(migration) for migration, _back in executor.migration_plan(targets)]
    hint = f"Run “manage.py migrate --database {using}”."
    if missing:
        yield Diagnosis(ERROR, "schema", f"Not applied: {', '.join(missing)}", hint)
        return
    if absent := missing_tables(using):
        hint = "A router keeps them from this database: see DATABASE_ROUTERS."
        yield Diagnosis(ERROR, "schema", f"There is no {', '.join(absent)}.", hint)
        return
    applied = {name for app, name in executor.loader.applied_migrations if app == "ems"}
    known = {name for app, name in executor.loader.graph.nodes if app == "ems"}
    if newer := sorted(applied - known):
        hint = "Fine while a new version is rolled out; otherwise this host runs an old one."
        text = f"The database is newer than this code: {', '.join(newer)}"
        yield Diagnosis(WARNING, "schema", text, hint)
    else:
        yield Diagnosis(OK, "schema", "All migrations are applied.")


def system_checks(using: str) -> Iterator[Diagnosis]:
    messages = checks.run_checks(tags=["ems"], databases=[using])
    spoken = [message for message in messages if not message.is_silenced()]
    for message in spoken:
        level = ERROR if message.level >= checks.ERROR else WARNING
        yield Diagnosis(level, str(message.id), str(message.msg), str(message.hint or ""))
    if not spoken:
        yield Diagnosis(OK, "checks", "Settings and server are as they should be.")


def silence(name: str, using: str) -> timedelta | None:
    """Return how long ago the step last ran; None if it never has."""
    return silences([name], using).get(name)


def silences(names: Sequence[str], using: str) -> dict[str, timedelta]:
    """Return how long ago these steps last ran, by one statement; without those that never have."""
    rows = Step.objects.using(using).filter(name__in=names).annotate(now=UtcNow())
    return {name: now - at for name, now, at in rows.values_list("name", "now", "last_run_at")}


def steps(using: str) -> Iterator[Diagnosis]:
    hint = "Run ems_consume, or Celery beat with streams.schedule.SCHEDULE."
    for name in (step.SEQUENCE, step.SWEEP):
        since = silence(name, using)
        if since is None:
            yield Diagnosis(ERROR, name, "This step has never run.", hint)
        elif since > SILENT:
            text = f"This step has not run for {since.total_seconds():.0f} s."
            yield Diagnosis(ERROR, name, text, hint)
        else:
            yield Diagnosis(OK, name, f"ran {since.total_seconds():.1f} s ago")


def inbox(using: str) -> Iterator[Diagnosis]:
    """Yield whether messages are due that have no offset yet."""
    partitions = [row[0] for row in fetch(using, sql.PARTITIONS)]
    due = Message.objects.using(using).inbox().filter(due_at__lte=UtcNow())
    count = due.filter(partition__in=partitions)[:COUNT_AT_MOST].count()
    if not count:
        yield Diagnosis(OK, "inbox", "empty")
        return
    waiting = plural(count, "message waits for an offset", "messages wait for an offset")
    since = silence(step.SEQUENCE, using)
    if since is not None and since <= SILENT:
        yield Diagnosis(OK, "inbox", waiting)
    else:
        yield Diagnosis(ERROR, "inbox", waiting, "Nothing sequences: see above.")


def partitions(using: str) -> Iterator[Diagnosis]:
    """Yield which partitions cannot be sequenced, and the statement that repairs each."""
    for found in damaged(using):
        text = (
            f"{found.name} cannot be sequenced: its next offset is {found.next_offset}, and"
            f" {found.last_offset} exists."
        )
        yield Diagnosis(ERROR, "partition", text, found.repair)


def topics(using: str) -> Iterator[Diagnosis]:
    """Yield which topics hold messages that no group reads."""
    autodiscover()
    for found in unread(using):
        text = f"{found.topic} holds {found.holdings}, and no group reads it."
        if found.meant:
            text += f" Did you mean {found.meant}?"
        hint = "Correct the name in send() or @consumer."
        yield Diagnosis(WARNING, "topic", text, hint)


def consumers(using: str) -> Iterator[Diagnosis]:
    clients = Consumer.objects.using(using).live().filter(own("group__name"))
    live = clients.values("client_id").distinct().count()
    partitions = Partition.objects.using(using).filter(own("topic__name"))
    used = partitions.filter(next_offset__gt=0).exists()
    if not live and used:
        yield Diagnosis(WARNING, "consumers", "No consumer is running.", "Run ems_consume.")
    else:
        yield Diagnosis(OK, "consumers", f"{live} live")
    open_ = own_rows(Delivery.objects.using(using).held(), using)
    late = open_.filter(deadline__lt=UtcNow(-2 * LEASE)).count()
    if late:
        text = plural(
            late,
            "delivery is past its deadline and has not been swept.",
            "deliveries are past their deadline and have not been swept.",
        )
        hint = "See whether the step “sweep” runs, and its log (streams.maintenance)."
        yield Diagnosis(ERROR, "leases", text, hint)
    else:
        yield Diagnosis(OK, "leases", "No delivery is past its deadline.")


def on(using: str) -> str:
    """Return the option that lets a command of a hint work on this alias; empty by default."""
    return "" if using == settings().DATABASE else f" --database {using}"


# What no other diagnosis says of a group.
SAID = frozenset({Trouble.AWAY, Trouble.STUCK, Trouble.SLOW_CALL, Trouble.BEHIND})


def groups(using: str) -> Iterator[Diagnosis]:
    groups = ConsumerGroup.objects.using(using).select_related("topic").order_by("name")
    dead = 0
    for standing in sorted(standings(groups, using), key=lambda one: one.order):
        lag = standing.lag
        dead += lag.dead
        waiting = (lag.behind or 0) + lag.waiting
        if waiting and lag.group.paused:
            hint = f"ems_groups resume {lag.group.name}{on(using)}"
            text = f"{lag.group} is paused, and {plural(waiting, 'message waits', 'messages wait')}"
        elif waiting and not lag.consumers:
            hint = "Does an ems_consume run that has this group?"
            waits = plural(waiting, "message waits", "messages wait")
            text = f"{lag.group} has no consumer, and {waits}"
        elif found := [need for need in standing.needs if need.trouble in SAID]:
            said = (f"{need.trouble.label} {standing.told(need)}".strip() for need in found)
            text = f"{lag.group}: {'; '.join(said)}"
            command = f"ems_groups deliveries {lag.group.name} --open{on(using)}"
            hint = f"{command} shows what its clients have in hand."
            if found[0].trouble == Trouble.AWAY:
                clients = Consumer.objects.using(using).away().filter(group=lag.group)
                hint = "; ".join(sorted(set(clients.values_list("away_reason", flat=True))))
        else:
            continue
        yield Diagnosis(WARNING, "group", text, hint)
    if dead:
        hint = f"ems_dead list{on(using)}; then redrive or discard."
        text = plural(dead, "waits for a decision", "wait for a decision")
        yield Diagnosis(WARNING, "dead letters", text, hint)
    else:
        yield Diagnosis(OK, "dead letters", "none")


def namespaces(using: str) -> Iterator[Diagnosis]:
    """Yield which namespaces share the tables, and topics that others consume and this one not."""
    others = other_namespaces(using)
    mine = settings().NAMESPACE
    if not (mine or others):
        return
    names = {name: f"“{name}”" if name else "none" for name in (mine, *others)}
    listed = ", ".join(f"{names[name]} ({count})" for name, count in sorted(others.items()))
    text = f"This one is {names[mine]}; topics of others: {listed or 'no others'}."
    unread = unread_here(using)
    if unread:
        hint = "Do all processes have the same EMS['NAMESPACE']: producers, consumers, beat?"
        some = ", ".join(unread[:NAMES_AT_MOST])
        text += f" Groups of others read these topics, and none of this one: {some}."
        yield Diagnosis(WARNING, "namespace", text, hint)
    else:
        yield Diagnosis(OK, "namespace", text)


def retention(using: str) -> Iterator[Diagnosis]:
    """Yield what is kept for ever, who holds back the purge, and whether any process purges."""
    found = [*_kept_for_ever(using), *_holding(using), *_not_purged(using)]
    yield from found
    if not found:
        rule = default_rule(using)
        text = f"Nothing holds it back; messages are kept for {rule}."
        if rule.age is None:
            text = "Nothing holds it back; every topic has a retention of its own."
        yield Diagnosis(OK, "retention", text)


def _kept_for_ever(using: str) -> Iterator[Diagnosis]:
    if default_rule(using).is_bounded:
        return
    used = Partition.objects.using(using).filter(topic=OuterRef("pk"), next_offset__gt=0)
    topics = Topic.objects.using(using).filter(WITHOUT_OWN_RULE).filter(Exists(used))
    if names := list(topics.order_by("name").values_list("name", flat=True)[: NAMES_AT_MOST + 1]):
        listed = ", ".join(names[:NAMES_AT_MOST]) + (" …" if len(names) > NAMES_AT_MOST else "")
        text = f"Messages are kept for ever in topics without a retention: {listed}"
        hint = (
            "Set messageRetentionDays, or the retention of each topic (0 seconds: for ever, on"
            " purpose)."
        )
        yield Diagnosis(WARNING, "retention", text, hint)


def _holding(using: str) -> Iterator[Diagnosis]:
    known = set()
    for group in abandoned(using):
        known.add(group.group.pk)
        hint = "Run its consumer; or ems_groups delete; or ems_purge --force."
        yield Diagnosis(WARNING, "retention", str(group), hint)
    for held in held_back(using):
        if held.hold.what == READER:
            continue  # told with the streams
        if held.group is None:
            hint = "Run “ems_spark archive”, or do not archive this topic."
        elif held.group.paused:
            hint = f"ems_groups resume {held.group.name}{on(using)}"
        else:
            hint = "See what it does: ems_groups list; the log of its consumers."
        if held.group is None or held.group.pk not in known:
            yield Diagnosis(WARNING, "retention", str(held), hint)


def _not_purged(using: str) -> Iterator[Diagnosis]:
    since = silence(step.PURGE, using)
    hint = "Run ems_consume, or Celery beat; or ems_purge."
    if since is None:
        # The first look of a process at the purge writes the row.
        old = Topic.objects.using(using).filter(created_at__lt=UtcNow(-NOT_PURGED))
        if old.exists():
            text = "No process purges: none has ever looked whether it is time."
            yield Diagnosis(WARNING, "retention", text, hint)
    elif since > NOT_PURGED:
        text = f"Nothing has been purged for {since.days} days."
        yield Diagnosis(WARNING, "retention", text, hint)


def redis() -> Iterator[Diagnosis]:
    if settings().REDIS is None:
        return
    try:
        from django_redis import get_redis_connection

        get_redis_connection(settings().REDIS).ping()
    except Exception as error:  # noqa: BLE001 - whatever the reason is
        text = f"Redis is unavailable: {error}"
        hint = f"Nothing is lost: consumers poll, every {settings().POLL_SECONDS:g} s when idle."
        yield Diagnosis(WARNING, "redis", text, hint)
    else:
        yield Diagnosis(OK, "redis", "answers")


def clock(using: str) -> Diagnosis:
    skew = database_now(using) - datetime.now(UTC)
    text = f"The database's clock is {skew.total_seconds():+.1f} s from this host's."
    if abs(skew) > SKEW:
        hint = "EMS uses only the database's; run NTP on both, or times in logs mislead."
        return Diagnosis(WARNING, "clock", text, hint)
    return Diagnosis(OK, "clock", text)


def server(using: str) -> Iterator[Diagnosis]:
    connection = connections[using]
    if connection.vendor != "mysql":
        yield Diagnosis(OK, "server", connection.display_name)
        return
    server = Server(using)
    zone = f"{server.variable('time_zone')} ({server.variable('system_time_zone')})"
    yield Diagnosis(OK, "server", server.name)
    yield Diagnosis(OK, "isolation", server.isolation)
    yield _binary_log(server)
    yield Diagnosis(OK, "time zone", zone)
    yield Diagnosis(OK, "collation", str(server.variable("collation_database")))
    yield Diagnosis(OK, "packet", f"{server.variable('max_allowed_packet')} bytes")
    yield _connections(server)
    try:
        yield _transactions(server)
    except DatabaseError:
        text = "Open transactions cannot be read."
        yield Diagnosis(WARNING, "transactions", text, "Grant PROCESS to this account.")


def _binary_log(server: Server) -> Diagnosis:
    """Say what the binary log costs: it is not a fault, and other readers may need all of it.

    The doctor comes as the account of the project, so what it may do, EMS may do.
    """
    if not server.binlog_format:
        return Diagnosis(OK, "binlog", "off")
    image = server.variable("SESSION.binlog_row_image")
    texts, hints = [f"{server.binlog_format}, {image}."], []
    if image == "FULL":
        with bodies_left_out(server.alias) as left_out:
            pass
        if left_out:
            texts.append("It takes each body once: EMS leaves it out when it sequences and purges.")
        else:
            grant = "BINLOG ADMIN" if server.is_mariadb else "SESSION_VARIABLES_ADMIN"
            texts.append("It takes each body four times: sent, twice when sequenced, and purged.")
            hints.append(
                f"GRANT {grant} ON *.* to this account, and EMS takes it once, if no reader of the"
                " log needs whole rows."
            )
    if server.is_mariadb and server.variable("GLOBAL.binlog_annotate_row_events"):
        texts.append("It takes each send as text too, with a body of up to 64 KiB twice.")
        hints.append("binlog_annotate_row_events=OFF leaves the text out.")
    return Diagnosis(OK, "binlog", " ".join(texts), " ".join(hints))


def _connections(server: Server) -> Diagnosis:
    autodiscover()
    groups = by_alias(registrations())
    here = groups if server.alias in groups else by_alias(registrations(), server.alias)
    of_groups = [threads(one, server.alias) for one in here.get(server.alias, [])]
    share = shares(here).get(server.alias)
    budget = pool_size(of_groups, server.alias, share=share)
    budget += KEEPER_CONNECTIONS + may_check(server.alias)
    limit, used = int(server.variable("max_connections")), server.status("Threads_connected") or 0
    text = (
        f"A consumer of all groups uses up to {budget} connections; {used} of {limit} are in use."
    )
    if used + budget <= limit:
        return Diagnosis(OK, "connections", text)
    hint = "One more would not fit: fewer threads (--threads), or a higher max_connections."
    return Diagnosis(WARNING, "connections", text, hint)


def _transactions(server: Server) -> Diagnosis:
    """Diagnose old transactions: the server keeps, and scans read, all changes made since."""
    # trx_started is in the time zone of the server's host, whatever that of the session is.
    oldest = server.rows(
        "SELECT TIMESTAMPDIFF(SECOND, CONVERT_TZ(`trx_started`, 'SYSTEM', '+00:00'),"
        " UTC_TIMESTAMP()), `trx_mysql_thread_id`"
        " FROM information_schema.INNODB_TRX ORDER BY `trx_started` LIMIT 1"
    )
    ((length,),) = server.rows(
        "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'"
    )
    age, thread = oldest[0] if oldest else (0, 0)
    text = f"The oldest open transaction is {age} s old; history list: {length}."
    if age > LONG_TRANSACTION.total_seconds():
        hint = f"End it: KILL {thread}, and see to what left it open."
        return Diagnosis(WARNING, "transactions", text, hint)
    if length > LONG_HISTORY:
        hint = "The server's purge is behind: long transactions, or more changes than it can."
        return Diagnosis(WARNING, "transactions", text, hint)
    return Diagnosis(OK, "transactions", text)
