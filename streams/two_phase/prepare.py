"""Defines prepare() and prepared(): a message is kept, and sent once somebody says so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import Error, IntegrityError

from streams import telemetry
from streams.api import Outgoing
from streams.conf import make_sure_enabled
from streams.database.elsewhere import elsewhere
from streams.database.retrying import retrying, tables_missing
from streams.database.transactions import (
    in_test_case,
    in_transaction,
    own_transaction,
    supports_other_connections,
)
from streams.errors import (
    InvalidMessage,
    NotMigrated,
    PreparedConflict,
    UnknownPrepared,
)
from streams.models import PreparedRow, PreparedState
from streams.models.prepared import of_key
from streams.produce.asynchronous import refuse_async
from streams.produce.identity import producer_name
from streams.produce.send import Sending
from streams.sharding import alias_of
from streams.two_phase.content import PreparedContent, checked_content, checked_names, same_context
from streams.two_phase.decide import PATIENCE_SECONDS, refusal
from streams.two_phase.handle import STATES, Prepared, handle
from streams.two_phase.lookup import alias_with
from streams.two_phase.row import insert

# How often a row is inserted that was purged each time between the INSERT and the look for it.
TRIES = 3


def prepare(
    topic: str,
    body: Any = None,
    *,
    biz: str | int | UUID,
    biz_key: str | int | UUID,
    checker: str,
    key: str | int | UUID | None = None,
    tag: str = "",
    headers: Mapping[str, str] | None = None,
    partition: int | None = None,
    context: Any = None,
    check_after: timedelta | float | None = None,
    using: str | None = None,
) -> Prepared:
    """Keep one message until ``commit()`` sends it or ``rollback()`` drops it.

    Call it before the work. It is committed when this returns, whatever transaction is open. If
    nobody commits or rolls back, ``checker`` is asked: the name of a ``@checkback``, or of a check
    endpoint. It is first asked after ``check_after`` (a timedelta, or seconds; verifyFirstSeconds
    by default) and gets ``context``, at most 2,000 bytes as JSON.

    ``biz`` (at most 64 characters) and ``biz_key`` (255) name the work: a second call with the
    same content returns what is there, with ``created=False``, so a call whose answer was lost may
    be repeated. The other arguments are those of :func:`streams.send`. The message also has the
    headers ``ems-biz`` and ``ems-biz-key``.

    Returns a :class:`Prepared`. Raises a :class:`StreamsError` before anything is written: those
    of ``send()``, PreparedConflict if other content is prepared under this key, or with another
    checker or context, AlreadyDecided if it was rolled back, UnknownChecker, and on SQLite
    InvalidMessage inside a transaction. Where the data is in the database of EMS, ``send()`` in
    the transaction is simpler and better.
    """
    refuse_async("prepare", "sync_to_async(prepare)(…)")
    make_sure_enabled()
    alias = using or alias_of(topic)
    message = Outgoing(topic, body, key, tag, headers, partition=partition)

    def work(sent: Outgoing) -> Prepared:
        added = () if sent.headers is headers else {*(sent.headers or {})}.difference(headers or {})
        content = checked_content(
            sent,
            biz=biz,
            biz_key=biz_key,
            checker=checker,
            context=context,
            check_after=check_after,
            using=alias,
            added=added,
        )
        return keep(content, producer_name(), alias)

    try:
        if telemetry.active():
            sending = Sending([message], alias)
            traced = lambda: retrying(work, alias, sending.messages[0])  # noqa: E731
            return telemetry.run(telemetry.PREPARE, traced, sending)
        return retrying(work, alias, message)
    except Error as error:
        if tables_missing(error):
            raise NotMigrated.on(alias) from error
        raise


def prepared(
    biz: str | int | UUID, biz_key: str | int | UUID, *, using: str | None = None
) -> Prepared:
    """Return what is prepared under this business and key; raises UnknownPrepared.

    Without ``using``, look on all databases of ``EMS["SHARDS"]``, and prefer an undecided message
    to decided ones. Raises PreparedConflict if several databases have one that fits. If no database
    has it and one is unavailable, raises the Error of that one.
    """
    refuse_async("prepared", "sync_to_async(prepared)(…)")
    return look_up(biz, biz_key, using, PATIENCE_SECONDS)


def look_up(
    biz: str | int | UUID, biz_key: str | int | UUID, using: str | None, patience: float
) -> Prepared:
    """Do what prepared() does; try for ``patience`` seconds on the database that has it."""
    alias = alias_with(biz, biz_key, using)
    rows = PreparedRow.objects.using(alias).filter(of_key(*checked_names(biz, biz_key)))
    row = retrying(rows.defer("body").first, alias, patience=patience)
    if row is None:
        raise UnknownPrepared
    return handle(row, alias)


def keep(content: PreparedContent, producer: str, using: str) -> Prepared:
    """Write the row, committed when this returns; raises PreparedConflict."""
    if not in_transaction(using):
        return retrying(_keep_at_once, using, content, producer, using)
    if in_test_case(using):
        return keep_joined(content, producer, using)
    if not supports_other_connections(using):
        raise InvalidMessage(
            "On this database, call prepare() before the transaction: it has only one writer."
        )
    return elsewhere(using, lambda: retrying(keep_joined, using, content, producer, using))


def _keep_at_once(content: PreparedContent, producer: str, using: str) -> Prepared:
    """Write the row by one statement, where no transaction is open."""
    try:
        return _created(insert(content, producer, using), content, using)
    except IntegrityError:
        return keep_joined(content, producer, using)


def keep_joined(content: PreparedContent, producer: str, using: str) -> Prepared:
    """Write the row as a part of the open transaction, if there is one; raises PreparedConflict."""
    tries = 0
    while True:
        tries += 1
        # Look first: an INSERT that fails would lock the gap beside the key until the end of the
        # transaction, and one beside an open transaction of this thread could wait for itself.
        found = _same_key(content, using)
        if found is not None:
            return _again(found, content, using)
        try:
            with own_transaction(using):
                pk = insert(content, producer, using)
        except IntegrityError:
            # Locking, so that it sees what was committed since the snapshot of the caller.
            found = _same_key(content, using, lock=in_transaction(using))
            if found is not None:
                return _again(found, content, using)
            if tries == TRIES:
                raise
            continue  # purged meanwhile, or the error is not about the key
        return _created(pk, content, using)


def _created(pk: int, content: PreparedContent, using: str) -> Prepared:
    return Prepared(
        biz=content.biz,
        biz_key=content.biz_key,
        topic=content.columns["topic"],
        state=STATES[PreparedState.PREPARED],
        message_id=None,
        created=True,
        using=using,
        row_id=pk,
    )


def _again(found: PreparedRow, content: PreparedContent, using: str) -> Prepared:
    """Return what is there; raises PreparedConflict if it is another message, AlreadyDecided if
    it was rolled back: who goes on would work for a message that is never sent.
    """
    columns = content.columns
    same_check = found.checker == columns["checker"] and same_context(
        found.context, columns["context"]
    )
    if bytes(found.digest) != columns["digest"] or not same_check:
        raise PreparedConflict(f"Other content is prepared under {content.biz}:{content.biz_key}.")
    if found.state == PreparedState.ROLLED_BACK:
        raise refusal(found)
    return handle(found, using)


def _same_key(content: PreparedContent, using: str, *, lock: bool = False) -> PreparedRow | None:
    rows = PreparedRow.objects.using(using).filter(of_key(content.biz, content.biz_key))
    if not lock:
        return rows.defer("body").first()
    with own_transaction(using):
        return rows.select_for_update().defer("body").first()
