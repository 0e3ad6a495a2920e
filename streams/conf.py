"""Defines the settings: ``EMS`` in Django's settings, and the defaults of SystemConfig.

``EMS`` holds what a process needs before it can read the database. Everything else is a row of
SystemConfig that overrides a default below, so that it can be changed while processes run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from streams.errors import ConfigurationError, Disabled

MINUTE, HOUR = 60, 3600

# The default retry delays in seconds: the sixteen levels of RocketMQ's messageDelayLevel from its
# third on.
LADDER = (10, 30, *range(MINUTE, 10 * MINUTE + 1, MINUTE), 1200, 1800, HOUR, 2 * HOUR)

# How long a process may act on what it read from SystemConfig or a topic row, in seconds.
FRESH_SECONDS = 5.0

# A send that has taken longer than these seconds since it looked its topic up looks again after
# its INSERT.
SURE_SECONDS = 5.0

# A client renews its lease every 5 s and is dead after 15 s without (docs/about/architecture.md).
RENEW_SECONDS = 5.0
LEASE_SECONDS = 15.0

# Connections of a consumer process beside those of its workers: the supervisor's, the poller's,
# the heartbeat's and the maintenance's.
KEEPER_CONNECTIONS = 4

# The most bytes of the bodies and headers of one handler call. A single message is handed over
# however large it is.
CLAIM_BYTES = 16 * 1024 * 1024
# The most of them that one statement reads, and that a worker thread holds for later calls.
READ_BYTES = CLAIM_BYTES // 4

MAX_BATCH = 1000
# The most messages of a claim that is settled in any order: one bit each of Delivery.settled.
MAX_ANY_ORDER = 63

# The most seconds that a request over HTTP is held. gunicorn ends a worker after 30 silent ones,
# nginx a request after 60.
MAX_HOLD = 20

# How the span of a handler refers to that of the send.
LINK, PARENT = "link", "parent"

# The end of a pattern in SHARDS that stands for any rest of a topic's name.
ANY_REST = "*"

# In lower case only: not every column that has a namespace compares byte for byte.
NAMESPACE = re.compile(r"[a-z0-9._-]{0,16}")

DAY = 24 * HOUR
YEARS = 36525  # a hundred, in days
MOST = 2**31 - 1  # what an integer column can have


@dataclass(frozen=True)
class RunTime:
    """A run-time setting: its default, which has its type, and the numbers that it may be."""

    default: Any
    at_least: int = 1
    at_most: int = MOST


RUN_TIME = {
    # Random, written by migrate. It tells the databases of one Redis apart.
    "installationId": RunTime(""),
    # Which topics are on which database, as sharding.fingerprint() says it; written by migrate.
    "shardsHash": RunTime(""),
    "autoCreateTopic": RunTime(True),
    "msgMaxSizeInBytes": RunTime(4210688, at_most=2**30),  # as max_allowed_packet
    "consumerBatchSize": RunTime(10, at_most=MAX_BATCH),
    "consumerThreads": RunTime(5, at_most=1000),
    "processThreads": RunTime(8, at_most=1000),
    # 0: a claim is one batch.
    "consumerClaimSeconds": RunTime(0.25, at_least=0, at_most=10),
    "consumerRetryMaxTimes": RunTime(16, at_least=0),
    # Of a group by key: messages that wait for their key, and those for which they wait.
    "parkedMessagesMax": RunTime(10_000, at_most=10**6),
    "consumeTimeoutSeconds": RunTime(60),
    "dedupWindowSeconds": RunTime(600),
    # Of prepared messages: check n + 1 comes n + 1 steps after check n, as with TrustMessage.
    "verifyFirstSeconds": RunTime(60, at_most=DAY),
    "verifyStepSeconds": RunTime(60, at_most=DAY),
    "verifyMaxTimes": RunTime(15, at_most=1000),
    "verifyTimeoutSeconds": RunTime(5, at_most=60),
    "sendMaxTimes": RunTime(15, at_most=1000),
    "preparedRetentionDays": RunTime(7, at_most=YEARS),
    # 0 says for ever. The first migrate writes a row with 7: without that row nothing is deleted.
    "messageRetentionDays": RunTime(0, at_least=0, at_most=YEARS),
    # After so long without a sign of it, a purge no longer waits for a stream of Spark.
    "readerProtectDays": RunTime(7, at_most=YEARS),
    "deliveryRetentionDays": RunTime(30, at_least=0, at_most=YEARS),
    "deadRetentionDays": RunTime(0, at_least=0, at_most=YEARS),
    "figureRetentionDays": RunTime(0, at_least=0, at_most=YEARS),
    "figureMinuteRetentionDays": RunTime(31, at_least=0, at_most=YEARS),
}
DEFAULTS: dict[str, Any] = {name: one.default for name, one in RUN_TIME.items()}


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and value > 0


def _is_hold(value: Any) -> bool:
    return value == 0 or (_is_positive(value) and value <= MAX_HOLD)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_namespace(value: Any) -> bool:
    return isinstance(value, str) and bool(NAMESPACE.fullmatch(value))


def _is_dotted(value: Any) -> bool:
    return isinstance(value, str) and "." in value


def _is_folder(value: Any) -> bool:
    return isinstance(value, str | Path) and bool(str(value))


def _is_network(value: Any) -> bool:
    try:
        ip_network(value)
    except ValueError:
        return False
    return isinstance(value, str)


def _is_site(value: Any) -> bool:
    if not isinstance(value, str) or not value.isascii() or any(c.isspace() for c in value):
        return False
    try:
        parts = urlsplit(value)
        _port = parts.port
    except ValueError:
        return False
    is_bare = not (parts.username or parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_bare


def _all(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(is_right, value))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def _key(default: Any, is_right: Callable[[Any], bool], words: str) -> Any:
    """Return a key of ``EMS``, which is right as ``words`` say: "EMS['KEY'] must be WORDS."."""
    return field(default=default, metadata={"is_right": is_right, "words": words})


def _option(is_right: Callable[[Any], bool], words: str) -> Any:
    return _key(None, lambda value: value is None or is_right(value), f"{words}, or None")


@dataclass(frozen=True)
class Settings:
    """The dict ``EMS`` of Django's settings, with its defaults; durations are in seconds."""

    ENABLED: bool = _key(True, _is_flag, "True or False")
    DATABASE: str = _key(
        "default", lambda value: value in django_settings.DATABASES, "an alias in DATABASES"
    )
    SHARDS: Mapping[str, str] = field(default_factory=dict)
    REDIS: str | None = _option(lambda value: value in django_settings.CACHES, "an alias in CACHES")
    NAMESPACE: str = _key("", _is_namespace, "a text of at most 16 of the characters a-z 0-9 . _ -")
    RETRY_DELAYS: Sequence[float] = _key(
        LADDER,
        lambda value: bool(value) and _all(_is_positive)(value),
        "a list of one or more numbers of seconds > 0",
    )
    POLL_SECONDS: float = _key(1.0, _is_positive, "a number of seconds > 0")
    DEATH_LOCK: bool = _key(True, _is_flag, "True or False")
    SEND_TOGETHER: bool = _key(False, _is_flag, "True or False")
    DRAIN_SECONDS: float = _key(30.0, _is_positive, "a number of seconds > 0")
    STATE_DIR: str | Path = _key("ems-state", _is_folder, "the path of a folder")  # noqa: RUF009
    ARCHIVE: str | Path | None = None
    MIDDLEWARE: Sequence[str] = _key((), _all(_is_dotted), "a list of dotted paths")
    PARTITIONER: str | None = _option(_is_dotted, "a dotted path")
    METRICS_TOKEN: str | None = _option(_is_text, "a text")
    TRACING: bool | None = _option(_is_flag, "True, False")
    TRACE_PARENT: str = _key(LINK, lambda value: value in (LINK, PARENT), "“link” or “parent”")
    TWO_PHASE_TOPIC: str | None = _option(_is_text, "a topic")
    HTTP_THREADS: int = _key(
        8, lambda value: type(value) is int and 1 <= value <= 256, "a number from 1 to 256"
    )
    HTTP_INSECURE: bool = _key(False, _is_flag, "True or False")
    HTTP_HOLD_SECONDS_WSGI: float = _key(2.0, _is_hold, f"a number of seconds from 0 to {MAX_HOLD}")
    HTTP_METRICS_FROM: Sequence[str] = _key(
        (), _all(_is_network), "a list of addresses or networks"
    )
    STRESS: bool = _key(False, _is_flag, "True or False")
    SITE_URL: str | None = _option(_is_site, "an address such as “https://ops.example.com”")

    def __post_init__(self) -> None:
        for one in fields(self):
            is_right = one.metadata.get("is_right")
            if is_right and not is_right(value := getattr(self, one.name)):
                shown = "" if one.name == "METRICS_TOKEN" else f", not {value!r}"
                raise ConfigurationError(
                    f"EMS[{one.name!r}] must be {one.metadata['words']}{shown}."
                )
        if self.TRACING and not _is_installed("opentelemetry.trace"):
            raise ConfigurationError(
                "EMS['TRACING'] needs opentelemetry-api: install the extra “otel”."
            )
        self._check_shards()

    def _check_shards(self) -> None:
        shards: Any = self.SHARDS
        if not isinstance(shards, Mapping):
            raise ConfigurationError("EMS['SHARDS'] must be a dict of topics and aliases.")
        for topic, alias in shards.items():
            # A name without a rest, or a prefix that ends with a dot: "logs.*".
            name = topic.removesuffix(f".{ANY_REST}") if isinstance(topic, str) else ""
            if not name.strip() or ANY_REST in name:
                raise ConfigurationError(
                    f"EMS['SHARDS'] has {topic!r}: say a topic, or a prefix such as “logs.*”."
                )
            if alias not in django_settings.DATABASES:
                raise ConfigurationError(f"EMS['SHARDS'] has {alias!r}, which is not in DATABASES.")


def load(path: str, setting: str) -> Callable[..., Any]:
    """Import what the dotted ``path`` of a setting names; raises ConfigurationError.

    An ImportError inside the module that it names is one of these, too.
    """
    try:
        found = import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            f"EMS[{setting!r}] names {path}, which cannot be imported: {error}"
        ) from error
    if not callable(found):
        raise ConfigurationError(f"EMS[{setting!r}] names {path}, which cannot be called.")
    return cast("Callable[..., Any]", found)


_settings: Settings | None = None


def settings() -> Settings:
    """Return the validated ``EMS`` settings; raises ConfigurationError."""
    global _settings
    if _settings is None:
        given = getattr(django_settings, "EMS", {})
        if not isinstance(given, dict):
            raise ConfigurationError(f"The setting EMS must be a dict, not {given!r}.")
        known = [field.name for field in fields(Settings)]
        for name in given:
            if name not in known:
                close = get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise ConfigurationError(f"Unknown key {name!r} in the setting EMS." + hint)
        _settings = Settings(**given)
    return _settings


def make_sure_enabled() -> None:
    """Raise Disabled in a process that must neither send nor consume: ``EMS["ENABLED"]``."""
    if not settings().ENABLED:
        raise Disabled


def _reload(*, setting: str, **kwargs: Any) -> None:
    global _settings
    if setting in ("EMS", "DATABASES", "CACHES"):
        _settings = None


setting_changed.connect(_reload)


def name_prefix() -> str:
    """Return what the tables have before each name of this namespace, " blue/"; or "".

    No name begins with a blank, so no name of an installation without a namespace looks like one
    that has it.
    """
    namespace = settings().NAMESPACE
    return f" {namespace}/" if namespace else ""


def longest_name(at_most: int) -> int:
    """Return how long a name may be that is stored in ``at_most`` characters with its prefix."""
    return at_most - len(name_prefix())


_chosen: ContextVar[str | None] = ContextVar("ems_database", default=None)


def database(using: str | None = None) -> str:
    """Return the alias to work on: ``using``, that of ``working_on()``, or ``EMS["DATABASE"]``."""
    return using or _chosen.get() or settings().DATABASE


@contextmanager
def working_on(alias: str) -> Iterator[None]:
    """Let ``database()`` return ``alias`` inside the block, in this thread or task."""
    token = _chosen.set(alias)
    try:
        yield
    finally:
        _chosen.reset(token)
