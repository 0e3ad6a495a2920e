"""Asks one checker, a function or an endpoint, what became of one prepared message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from streams.api import Decision, PreparedMessage
from streams.errors import CheckFailed, Unanswered, Unreachable
from streams.models import CheckEndpoint, Dialect, PreparedRow
from streams.outgoing import SIGNATURE, OutgoingRequest, SendingFailed, send, signature
from streams.runtime_settings import system
from streams.two_phase.registry import find

# What an endpoint of TrustMessage answers.
STATUSES = {
    1: Decision.UNKNOWN,
    2: Decision.COMMIT,
    3: Decision.ROLLBACK,
    "prepare": Decision.UNKNOWN,
    "commit": Decision.COMMIT,
    "rollback": Decision.ROLLBACK,
}
DECISIONS = {decision.value: decision for decision in Decision}


def ask_function(row: PreparedRow) -> Decision:
    """Call the registered function; raises CheckFailed, or what the function raises."""
    function = find(row.checker)
    if function is None:
        raise CheckFailed(f"no function {row.checker!r} is registered in this process")
    answer = function(
        PreparedMessage(
            biz=row.biz,
            biz_key=row.biz_key,
            topic=row.topic,
            checks=row.checks,
            context=row.context,
            created_at=row.created_at,
            body_type=row.body_type,
            raw_body=bytes(row.body),
        )
    )
    if not isinstance(answer, Decision):
        raise CheckFailed(f"{row.checker!r} returned {answer!r:.200}, which is not a Decision")
    return answer


def ask_endpoint(
    endpoint: CheckEndpoint, row: PreparedRow, now: datetime, seconds: float
) -> Decision:
    """Ask over HTTP, within about ``seconds``; ``now`` is the time of the database.

    Raises Unreachable without a connection, Unanswered if it gives no answer or 5xx, and
    CheckFailed for each other answer that is none. None is ever a rollback: a wrong address must
    not lose messages.
    """
    make, read = _DIALECTS[Dialect(endpoint.dialect)]
    if urlsplit(endpoint.url).scheme != "https" and not endpoint.allow_private:
        raise CheckFailed("http is for private addresses only")
    try:
        answer = send(
            make(endpoint, row, now), allow_private=endpoint.allow_private, seconds=seconds
        )
    except SendingFailed as error:
        if not error.arrived:
            raise Unreachable(str(error)) from error
        if error.status is None or error.status >= 500:
            raise Unanswered(str(error)) from error
        raise CheckFailed(str(error)) from error
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise CheckFailed("the answer is not JSON") from error
    return read(row, found)


def _ems_request(endpoint: CheckEndpoint, row: PreparedRow, now: datetime) -> OutgoingRequest:
    prepared_at = row.created_at.astimezone(UTC).isoformat(timespec="microseconds")
    question = {
        "biz": row.biz,
        "biz_key": row.biz_key,
        "topic": row.topic,
        "check": row.checks,
        "prepared_at": prepared_at.replace("+00:00", "Z"),
        "context": row.context,
    }
    body = json.dumps(question).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "ems-checks",
        "Ems-Id": f"{row.pk or 0}-{row.checks}",
    }
    if endpoint.secret:
        headers[SIGNATURE] = signature(endpoint.secret, int(now.timestamp()), body)
    return OutgoingRequest(endpoint.url, body, headers)


def _ems_answer(row: PreparedRow, found: Any) -> Decision:
    decision = found.get("decision") if isinstance(found, dict) else None
    if not isinstance(decision, str) or decision not in DECISIONS:
        raise CheckFailed(f"the answer has no decision: {found!r:.200}")
    return DECISIONS[decision]


def _trustmessage_request(
    endpoint: CheckEndpoint, row: PreparedRow, now: datetime
) -> OutgoingRequest:
    scheme, host, path, query, _fragment = urlsplit(endpoint.url)
    asked = urlencode({"bizID": row.biz, "messageKey": row.biz_key})
    url = urlunsplit((scheme, host, path, f"{query}&{asked}" if query else asked, ""))
    return OutgoingRequest(url, headers={"User-Agent": "ems-checks"}, method="GET")


def _trustmessage_answer(row: PreparedRow, found: Any) -> Decision:
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict) or str(data.get("messageKey")) != row.biz_key:
        raise CheckFailed(f"the answer is about another message: {found!r:.200}")
    status = data.get("messageStatus")
    if isinstance(status, bool) or not isinstance(status, int | str) or status not in STATUSES:
        raise CheckFailed(f"the answer has no status: {found!r:.200}")
    return STATUSES[status]


_DIALECTS = {
    Dialect.EMS: (_ems_request, _ems_answer),
    Dialect.TRUSTMESSAGE: (_trustmessage_request, _trustmessage_answer),
}


def ask_about_nothing(endpoint: CheckEndpoint, now: datetime, using: str) -> Decision:
    """Ask about a key that cannot be; raises CheckFailed."""
    seconds = endpoint.timeout_seconds or system("verifyTimeoutSeconds", using)
    key = "ems-test-of-the-endpoint"
    row = PreparedRow(
        biz="ems-test", biz_key=key, topic="ems-test", checks=0, created_at=now, context=None
    )
    return ask_endpoint(endpoint, row, now, seconds)
