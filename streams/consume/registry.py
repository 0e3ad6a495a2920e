"""Defines @consumer, and finds the consumers of the project in each app's ``consumers.py``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeVar, overload

from django.apps import apps

from streams.api import ReceivedMessage
from streams.conf import MAX_ANY_ORDER, MAX_BATCH, longest_name
from streams.consume.handler import check, is_async, name_of
from streams.consume.outcome.backoff import RetryPolicy, retry_policy
from streams.consume.rate import Rate
from streams.errors import InvalidConsumer
from streams.rules.names import MAX_NAME, MAX_TAG, validated_name
from streams.sharding import alias_of, aliases
from streams.typed.known import typed_body
from streams.typed.typed_body import TypedBody

Failures = Mapping[ReceivedMessage, BaseException]

# Of a partition, or of each key in it.
Order = bool | Literal["key"]

# The name of a header, or what gets a message and returns a text.
RateKey = str | Callable[[ReceivedMessage], str]

Async = Coroutine[Any, Any, None]
AsyncFailures = Coroutine[Any, Any, Failures | None]

OneHandler = TypeVar("OneHandler", bound=Callable[[ReceivedMessage], Async | None])
BatchHandler = TypeVar(
    "BatchHandler", bound=Callable[[Sequence[ReceivedMessage]], AsyncFailures | Failures | None]
)

Body = TypeVar("Body")
Argument = TypeVar("Argument")
Returned = TypeVar("Returned")
OfOne = TypeVar("OfOne", bound=Async | None)
OfBatch = TypeVar("OfBatch", bound=AsyncFailures | Failures | None)
# What takes a handler whose argument and result are of these types, and returns it.
TypedHandler = Callable[[Callable[[Argument], Returned]], Callable[[Argument], Returned]]


@dataclass(frozen=True)
class Registration:
    """A decorated function and the arguments of its decorator."""

    handler: Callable[[Any], Any]
    topic: str
    group: str
    batch: int | None
    threads: int | None
    mode: str
    start: str | datetime | None
    ordered: Order
    atomic: bool
    tags: tuple[str, ...]
    max_retries: int | None
    retry: RetryPolicy | None
    consume_timeout: float | None
    rehearsable: bool = False
    body: TypedBody | None = None
    on_dead: Literal["hold"] | None = None
    rate: Rate | None = None
    rate_key: RateKey | None = None
    lanes: int = 1
    # Of a partition, by its number: claims begin at the lowest, and not by turns. See ranked().
    rank: Callable[[int], int] | None = None
    # After how many seconds the call of a message hangs, below consume_timeout. See timed().
    own_timeout: Callable[[ReceivedMessage], float | None] | None = None

    @property
    def name(self) -> str:
        return name_of(self.handler)

    @property
    def asynchronous(self) -> bool:
        return is_async(self.handler)


BURST = "≥ 1, beside a rate that does not say it"

_registered: dict[tuple[str, str], Registration] = {}


@overload
def consumer(
    topic: str,
    *,
    group: str,
    batch: None = None,
    threads: int | None = None,
    mode: Literal["cluster", "broadcast"] = "cluster",
    start: Literal["earliest", "latest"] | datetime | None = None,
    ordered: Order = False,
    on_dead: Literal["hold"] | None = None,
    lanes: int = 1,
    atomic: bool = False,
    tags: Sequence[str] = (),
    max_retries: int | None = None,
    retry: RetryPolicy | Sequence[timedelta | float] | None = None,
    consume_timeout: float | None = None,
    rate: str | None = None,
    burst: int | None = None,
    rate_key: RateKey | None = None,
    rehearsable: bool = False,
) -> Callable[[OneHandler], OneHandler]: ...


@overload
def consumer(
    topic: str,
    *,
    group: str,
    batch: int,
    threads: int | None = None,
    mode: Literal["cluster", "broadcast"] = "cluster",
    start: Literal["earliest", "latest"] | datetime | None = None,
    ordered: Order = False,
    on_dead: Literal["hold"] | None = None,
    atomic: bool = False,
    tags: Sequence[str] = (),
    max_retries: int | None = None,
    retry: RetryPolicy | Sequence[timedelta | float] | None = None,
    consume_timeout: float | None = None,
    rate: str | None = None,
    burst: int | None = None,
    rate_key: RateKey | None = None,
    rehearsable: bool = False,
) -> Callable[[BatchHandler], BatchHandler]: ...


@overload
def consumer(
    topic: str,
    *,
    group: str,
    body: type[Body],
    batch: None = None,
    threads: int | None = None,
    mode: Literal["cluster", "broadcast"] = "cluster",
    start: Literal["earliest", "latest"] | datetime | None = None,
    ordered: Order = False,
    on_dead: Literal["hold"] | None = None,
    lanes: int = 1,
    atomic: bool = False,
    tags: Sequence[str] = (),
    max_retries: int | None = None,
    retry: RetryPolicy | Sequence[timedelta | float] | None = None,
    consume_timeout: float | None = None,
    rate: str | None = None,
    burst: int | None = None,
    rate_key: RateKey | None = None,
    rehearsable: bool = False,
) -> TypedHandler[ReceivedMessage[Body], OfOne]: ...


@overload
def consumer(
    topic: str,
    *,
    group: str,
    body: type[Body],
    batch: int,
    threads: int | None = None,
    mode: Literal["cluster", "broadcast"] = "cluster",
    start: Literal["earliest", "latest"] | datetime | None = None,
    ordered: Order = False,
    on_dead: Literal["hold"] | None = None,
    atomic: bool = False,
    tags: Sequence[str] = (),
    max_retries: int | None = None,
    retry: RetryPolicy | Sequence[timedelta | float] | None = None,
    consume_timeout: float | None = None,
    rate: str | None = None,
    burst: int | None = None,
    rate_key: RateKey | None = None,
    rehearsable: bool = False,
) -> TypedHandler[Sequence[ReceivedMessage[Body]], OfBatch]: ...


def consumer(
    topic: str,
    *,
    group: str,
    batch: int | None = None,
    threads: int | None = None,
    mode: Literal["cluster", "broadcast"] = "cluster",
    start: Literal["earliest", "latest"] | datetime | None = None,
    ordered: Order = False,
    on_dead: Literal["hold"] | None = None,
    lanes: int = 1,
    atomic: bool = False,
    tags: Sequence[str] = (),
    max_retries: int | None = None,
    retry: RetryPolicy | Sequence[timedelta | float] | None = None,
    consume_timeout: float | None = None,
    rate: str | None = None,
    burst: int | None = None,
    rate_key: RateKey | None = None,
    rehearsable: bool = False,
    body: Any = None,
) -> Callable[[Any], Any]:
    """Register the function below as the handler of ``group`` on ``topic``; returns it unchanged.

    Without ``batch`` the handler takes one :class:`ReceivedMessage`; with ``batch=N`` a sequence
    of at most N, and it may return ``{message: exception}`` for those that failed. A handler that
    returns None has done its message; raise ``Retry``, ``Reject`` or anything else for the rest.
    It may be ``async def``: docs/guides/handlers.md says where it runs.

    ``mode``: "cluster" gives each message to one consumer of the group, "broadcast" to every
    process, which keeps its own position (docs/guides/broadcast.md). ``ordered``: messages of one
    key are handled one after the other, in the order of sending; a failed one is repeated before
    any later one of its partition, or with "key" before any later one of its key
    (docs/guides/ordering.md). Both are fixed when the group is created. ``on_dead="hold"``: with
    "key", a dead letter holds its key until it is redriven or discarded. ``lanes``: with "key", so
    many threads of the process handle the keys of a claim side by side. ``tags``: only messages
    with one of these tags; the others are passed over and counted.

    ``threads``: worker threads of each process. ``start``: where a new group begins, "earliest",
    "latest" or an aware datetime. It is needed only where the topic holds messages; a broadcast
    group begins at the latest without it. ``atomic``: run the handler and the acknowledgement in
    one transaction, so that what the handler writes to the database of EMS happens exactly once.
    ``max_retries``: attempts after the first one. ``retry``: how long a failed message waits, as a
    sequence of delays (timedeltas or seconds), as :class:`Exponential` or as any object with
    ``delay_after(attempt, error) -> timedelta | None``, where None gives up at once; by default
    ``EMS["RETRY_DELAYS"]``. ``consume_timeout``: seconds after which a call counts as hung. None
    leaves each of the others to the run-time settings (docs/reference/settings.md).

    ``rate``: how many messages all processes of the group together may begin, such as "50/s",
    "90/m" or "10/h". ``burst``: how many more may begin in any one second; by default a tenth of
    what may begin in a second, at least 1 (docs/guides/rates.md). ``rate_key``: the rate counts for
    each key by itself, which is the value of the header of this name, or what this function returns
    for a message. What may not begin yet comes again when it may, with its attempt unspent, and the
    others go on.

    ``rehearsable``: the handler does nothing outside the databases of the project, or nothing that
    would matter. Only then may a rehearsal call it, whose transactions are rolled back
    (docs/guides/replay.md).

    ``body``: a dataclass, a TypedDict, a Struct of msgspec or a model of pydantic. ``message.body``
    is such a value, and what cannot be read as one is a dead letter at once, without a call
    (docs/guides/typed-bodies.md).

    Raises InvalidConsumer, InvalidName, InvalidRate, InvalidRetryPolicy.
    """
    validated_name(topic, "topic", longest_name(MAX_NAME))
    validated_name(group, "group", longest_name(MAX_NAME))
    _require(batch is None or _is_count(batch, 1, MAX_BATCH), "batch", f"1 … {MAX_BATCH}")
    _require(threads is None or _is_count(threads, 1, 1000), "threads", "1 … 1000")
    _require(max_retries is None or _is_count(max_retries, 0, 10**6), "max_retries", "≥ 0")
    _require(consume_timeout is None or _is_time(consume_timeout), "consume_timeout", "> 0")
    _require(mode in ("cluster", "broadcast"), "mode", "'cluster' / 'broadcast'")
    _require(_is_start(start), "start", "'earliest' / 'latest' / an aware datetime")
    _require(isinstance(ordered, bool) or ordered == "key", "ordered", "True / False / 'key'")
    _require(isinstance(atomic, bool), "atomic", "True / False")
    _require(rate is None or isinstance(rate, str), "rate", "a text such as '50/s'")
    _require(burst is None or (_is_count(burst, 1, 10**9) and rate is not None), "burst", BURST)
    _require(_is_rate_key(rate_key), "rate_key", "the name of a header, or a function")
    _require(isinstance(rehearsable, bool), "rehearsable", "True / False")
    _require(isinstance(tags, list | tuple | set | frozenset), "tags", "a list of strings")
    wanted = tuple(validated_name(tag, "tag", MAX_TAG) for tag in tags)
    retries = max_retries is not None or retry is not None
    if mode == "broadcast" and (ordered or atomic or threads or retries or rate):
        raise InvalidConsumer(
            "A broadcast consumer has one thread, which keeps the order of each partition, no"
            " retries and no rate: leave out ordered, atomic, threads, max_retries, retry and rate."
        )
    _require(on_dead in (None, "hold"), "on_dead", "None / 'hold'")
    if on_dead and ordered != "key":
        raise InvalidConsumer("on_dead='hold' needs ordered='key': only there keys are held.")
    if rate_key is not None and (rate is None or ordered):
        raise InvalidConsumer(
            "rate_key needs a rate, and a group that is not ordered: what may not begin yet comes"
            " after later messages."
        )
    _require(_is_count(lanes, 1, MAX_ANY_ORDER), "lanes", f"1 … {MAX_ANY_ORDER}")
    if lanes > 1 and (ordered != "key" or atomic or batch):
        raise InvalidConsumer(
            "lanes need ordered='key', whose keys they are for, a handler of one message, and not"
            " atomic=True: a commit cannot say that calls before it have not ended."
        )
    policy = None if retry is None else retry_policy(retry)
    typed = None if body is None else typed_body(body)
    limit = None if rate is None else Rate.of(rate, burst)

    def register(handler: Any) -> Any:
        check(handler, batch)
        new = Registration(
            handler=handler,
            topic=topic,
            group=group,
            batch=batch,
            threads=threads,
            mode=mode,
            start=start,
            ordered=ordered,
            atomic=atomic,
            tags=wanted,
            max_retries=max_retries,
            retry=policy,
            consume_timeout=consume_timeout,
            rehearsable=rehearsable,
            body=typed,
            on_dead=on_dead,
            rate=limit,
            rate_key=rate_key,
            lanes=lanes,
        )
        known = _registered.get((topic, group))
        if known and known.handler is not handler:
            raise InvalidConsumer(
                f"Group {group!r} of topic {topic!r} has a consumer already: {known.name}."
            )
        _registered[topic, group] = new
        return handler

    return register


def ranked(topic: str, group: str, rank: Callable[[int], int]) -> None:
    """Let a registered group claim from the partition of the lowest rank that has something."""
    _registered[topic, group] = replace(_registered[topic, group], rank=rank)


def timed(topic: str, group: str, timeout: Callable[[ReceivedMessage], float | None]) -> None:
    """Let a call of a registered group hang after the seconds of its message, where it has any.

    The lease is as long as before: only the process that makes the call ends sooner.
    """
    _registered[topic, group] = replace(_registered[topic, group], own_timeout=timeout)


def _is_count(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_rate_key(value: Any) -> bool:
    return value is None or callable(value) or (isinstance(value, str) and value != "")


def _is_start(value: Any) -> bool:
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    return value in ("earliest", "latest", None)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and value is not True and 0 < value <= 10**6


def _require(valid: bool, name: str, allowed: str) -> None:
    if not valid:
        raise InvalidConsumer(f"{name} must be {allowed}.")


def autodiscover() -> None:
    """Import ``consumers.py`` of every installed app that has one.

    Commands, checks and streams.testing call this, never while the apps are loading. An
    ImportError inside such a module is raised. Other libraries use this file name, too.
    """
    for config in apps.get_app_configs():
        module = f"{config.name}.consumers"
        if find_spec(module) is not None:
            import_module(module)


def registrations(topics: Sequence[str] = (), groups: Sequence[str] = ()) -> Iterator[Registration]:
    """Yield the registered consumers, all or those of the given topics and groups."""
    for registration in _registered.values():
        if (not topics or registration.topic in topics) and (
            not groups or registration.group in groups
        ):
            yield registration


def by_alias(
    chosen: Iterable[Registration], using: str | None = None
) -> dict[str, list[Registration]]:
    """Return ``chosen`` by the alias that their topics are on, EMS["DATABASE"] first.

    With ``using``, an alias that has topics, only those that are there. Any other alias has all
    topics of its own, as before there were shards: then all are returned for it.
    """
    found: dict[str, list[Registration]] = {alias: [] for alias in aliases()}
    if using is not None and using not in found:
        found = {using: list(chosen)}
    else:
        for registration in chosen:
            found[alias_of(registration.topic)].append(registration)
    return {alias: some for alias, some in found.items() if some and using in (None, alias)}


def find(topic: str, group: str) -> Registration | None:
    """Return the registered consumer of ``group`` on ``topic``, or None."""
    return _registered.get((topic, group))


def handled_elsewhere(messages: Any) -> None:
    """Stands for what a client does: nothing of it runs here."""


def registration_of(topic: str, group: str, **changes: Any) -> Registration:
    """Return what stands for a consumer that is no function of ours: no handler and no tags."""
    absent = {"batch": None, "threads": None, "start": None, "max_retries": None}
    absent |= {"retry": None, "consume_timeout": None}
    fixed = {"mode": "cluster", "ordered": False, "atomic": False, "tags": ()}
    return Registration(handled_elsewhere, topic, group, **{**absent, **fixed, **changes})
