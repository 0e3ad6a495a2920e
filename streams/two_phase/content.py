"""Checks what to prepare, and makes its columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streams import runtime_settings
from streams.api import Outgoing
from streams.conf import longest_name, name_prefix
from streams.database.sql.dialect import fetch
from streams.database.sql.prepared import FIND_ENDPOINT
from streams.errors import InvalidMessage, MessageTooLarge, UnknownChecker
from streams.models.prepared import MAX_CONTEXT
from streams.produce.access import all_writable
from streams.produce.outgoing import checked_row
from streams.rules.json_column import check_storable
from streams.rules.names import MAX_BIZ, not_dots, text_of_key, validated_key, validated_name
from streams.sharding import home_of
from streams.two_phase.registry import find, is_registered

# The headers by which a receiver finds the business again.
BIZ, BIZ_KEY = "ems-biz", "ems-biz-key"

# The headers of a trace. They are not part of the content: a repeated call has a span of its own.
TRACE = frozenset({"traceparent", "tracestate", "baggage"})

# A check that would come later than a person is asked anyway is not a check.
LATEST_CHECK = timedelta(hours=24)


@dataclass(frozen=True)
class PreparedContent:
    """The checked columns of a prepared message, and when its first check is due."""

    biz: str
    biz_key: str
    columns: dict[str, Any]
    first_check: timedelta


def checked_content(
    message: Outgoing,
    *,
    biz: Any,
    biz_key: Any,
    checker: Any,
    context: Any = None,
    check_after: Any = None,
    using: str,
    added: Collection[str] = (),
) -> PreparedContent:
    """Check everything, also that the topic takes messages; a missing topic is created.

    ``delay``, ``deliver_at`` and the dedup key of ``message`` are not used. The headers of a trace,
    and those in ``added``, may differ where a call is repeated. Raises InvalidName,
    InvalidMessage, NotSerializable, MessageTooLarge, UnknownChecker, UnknownTopic, TopicDenied,
    UnknownPartition.
    """
    biz, biz_key = checked_names(biz, biz_key)
    given = message.headers
    headers = given
    if given is None or isinstance(given, Mapping):
        headers = {**(given or {}), BIZ: biz, BIZ_KEY: biz_key}
    row = checked_row(using, message.topic, message.body, message.key, message.tag, headers)
    extra = _checked_context(context)
    first_check = _checked_first(check_after, using)
    _check_checker(checker, using)
    all_writable([Outgoing(message.topic, partition=message.partition)], using)
    stored = json.loads(row.headers or "{}")
    parts = [message.topic, message.partition, row.key, row.tag, row.body_type]
    told = sorted(one for one in stored.items() if one[0] not in TRACE.union(added))
    named = json.dumps([*parts, told]).encode()
    columns = {
        "topic": message.topic,
        "partition": message.partition,
        "key": row.key,
        "tag": row.tag,
        "headers": stored,
        "body": row.body,
        "body_type": row.body_type,
        "size": row.size,
        "digest": hashlib.sha256(named + b"\0" + row.body).digest(),
        "checker": checker,
        "context": extra,
    }
    return PreparedContent(biz, biz_key, columns, first_check)


def checked_names(biz: Any, biz_key: Any) -> tuple[str, str]:
    """Return the business and its key as texts; raises InvalidName."""
    name = validated_name(text_of_key(biz), "business", longest_name(MAX_BIZ))
    what = "key of the business"
    return name, not_dots(validated_key(biz_key, what), what)


def _checked_context(context: Any) -> Any:
    if context is None:
        return None
    try:
        text = json.dumps(context, allow_nan=False)
        json.dumps(context, ensure_ascii=False).encode()  # MySQL takes no lone surrogates
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"The context cannot be written as JSON: {error}") from error
    if len(text.encode()) > MAX_CONTEXT:
        raise MessageTooLarge(
            f"The context has {len(text.encode())} bytes; at most {MAX_CONTEXT} are kept."
        )
    check_storable(context, "The context is")
    return context


def same_context(one: Any, other: Any) -> bool:
    """Tell whether two contexts are one, also where a server has made JSON of its own of it."""
    return _as_kept(one) == _as_kept(other)


def _as_kept(context: Any) -> str:
    # MySQL keeps a number that is not a BIGINT, signed or not, as a DOUBLE.
    def number(digits: str) -> float:
        return int(digits) if -(2**63) <= int(digits) < 2**64 else float(digits)

    return json.dumps(json.loads(json.dumps(context), parse_int=number), sort_keys=True)


def _checked_first(check_after: Any, using: str) -> timedelta:
    if check_after is None:
        return timedelta(seconds=runtime_settings.system("verifyFirstSeconds", using))
    after = check_after
    if isinstance(after, int | float) and not isinstance(after, bool):
        try:
            after = timedelta(seconds=after)
        except (OverflowError, ValueError):
            after = None
    if not isinstance(after, timedelta) or not timedelta(0) <= after <= LATEST_CHECK:
        text = "check_after must be a timedelta or seconds, at most a day, not %r."
        raise InvalidMessage(text % (check_after,))
    return after


def _check_checker(checker: Any, using: str) -> None:
    # The last one looks into each consumers.py: only where the others know nothing of it.
    if isinstance(checker, str) and (
        find(checker) is not None or _is_endpoint(checker, using) or is_registered(checker)
    ):
        return
    raise UnknownChecker(
        f"There is no @checkback({checker!r}) in a consumers.py, and no check endpoint {checker!r}."
    )


def _is_endpoint(name: str, using: str) -> bool:
    return bool(fetch(home_of(using), FIND_ENDPOINT, [name_prefix() + name]))
