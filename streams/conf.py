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
from django.utils.translation import gettext as _

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

# The most seconds that a request over HTTP is held. gunicorn ends a worker after 30 silent ones,
# nginx a request after 60.
MAX_HOLD = 20

# How the span of a handler refers to that of the send.
LINK, PARENT = "link", "parent"

# The end of a pattern in SHARDS that stands for any rest of a topic's name.
ANY_REST = "*"

# In lower case only: not every column that has a namespace compares byte for byte.
NAMESPACE = re.compile(r"[a-z0-9._-]{0,16}")

DEFAULTS: dict[str, Any] = {
    # Random, written by migrate. It tells the databases of one Redis apart.
    "installationId": "",
    # Which topics are on which database, as sharding.fingerprint() says it; written by migrate.
    "shardsHash": "",
    "autoCreateTopic": True,
    "msgMaxSizeInBytes": 4210688,
    "consumerBatchSize": 10,
    "consumerThreads": 5,
    "processThreads": 8,
    # 0: a claim is one batch.
    "consumerClaimSeconds": 0.25,
    "consumerRetryMaxTimes": 16,
    "consumeTimeoutSeconds": 60,
    "dedupWindowSeconds": 600,
    # Of prepared messages: check n + 1 comes n + 1 steps after check n, as with TrustMessage.
    "verifyFirstSeconds": 60,
    "verifyStepSeconds": 60,
    "verifyMaxTimes": 15,
    "verifyTimeoutSeconds": 5,
    "sendMaxTimes": 15,
    "preparedRetentionDays": 7,
    # 0 says for ever. The first migrate writes a row with 7: without that row nothing is deleted.
    "messageRetentionDays": 0,
    "deliveryRetentionDays": 30,
    "deadRetentionDays": 0,
    "figureRetentionDays": 0,
    "figureMinuteRetentionDays": 31,
}


@dataclass(frozen=True)
class Settings:
    """Holds the dict ``EMS`` of Django's settings, with its defaults; durations are in seconds."""

    ENABLED: bool = True
    DATABASE: str = "default"
    SHARDS: Mapping[str, str] = field(default_factory=dict)
    REDIS: str | None = None
    NAMESPACE: str = ""
    RETRY_DELAYS: Sequence[float] = LADDER
    POLL_SECONDS: float = 1.0
    DRAIN_SECONDS: float = 30.0
    STATE_DIR: str | Path = "ems-state"
    ARCHIVE: str | Path | None = None
    MIDDLEWARE: Sequence[str] = ()
    PARTITIONER: str | None = None
    METRICS_TOKEN: str | None = None
    TRACING: bool | None = None
    TRACE_PARENT: str = LINK
    TWO_PHASE_TOPIC: str | None = None
    HTTP_THREADS: int = 8
    HTTP_INSECURE: bool = False
    HTTP_HOLD_SECONDS_WSGI: float = 2.0
    HTTP_METRICS_FROM: Sequence[str] = ()
    STRESS: bool = False
    SITE_URL: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ENABLED, bool):
            raise ConfigurationError(_("EMS['ENABLED'] must be True or False."))
        for name in ("POLL_SECONDS", "DRAIN_SECONDS"):
            if not _positive(getattr(self, name)):
                raise ConfigurationError(_("EMS[%r] must be a number of seconds > 0.") % name)
        namespace: Any = self.NAMESPACE
        if not isinstance(namespace, str) or not NAMESPACE.fullmatch(namespace):
            raise ConfigurationError(
                _("EMS['NAMESPACE'] must be a text of at most 16 of the characters a-z 0-9 . _ -")
            )
        delays: Any = self.RETRY_DELAYS
        if not isinstance(delays, Sequence) or not delays or not all(map(_positive, delays)):
            raise ConfigurationError(
                _("EMS['RETRY_DELAYS'] must be a list of one or more numbers of seconds > 0.")
            )
        middleware: Any = self.MIDDLEWARE
        if not isinstance(middleware, list | tuple) or not all(map(_is_path, middleware)):
            raise ConfigurationError(_("EMS['MIDDLEWARE'] must be a list of dotted paths."))
        if self.PARTITIONER is not None and not _is_path(self.PARTITIONER):
            raise ConfigurationError(_("EMS['PARTITIONER'] must be a dotted path, or None."))
        token: Any = self.METRICS_TOKEN
        if token is not None and (not isinstance(token, str) or not token.strip()):
            raise ConfigurationError(_("EMS['METRICS_TOKEN'] must be a text, or None."))
        if self.TRACING not in (None, True, False):
            raise ConfigurationError(_("EMS['TRACING'] must be True, False or None."))
        if self.TRACING and not _is_installed("opentelemetry.trace"):
            raise ConfigurationError(
                _("EMS['TRACING'] needs opentelemetry-api: install the extra “otel”.")
            )
        if self.TRACE_PARENT not in (LINK, PARENT):
            raise ConfigurationError(_("EMS['TRACE_PARENT'] must be “link” or “parent”."))
        threads: Any = self.HTTP_THREADS
        if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= 256:
            raise ConfigurationError(_("EMS['HTTP_THREADS'] must be a number from 1 to 256."))
        hold: Any = self.HTTP_HOLD_SECONDS_WSGI
        if not (hold == 0 or _positive(hold)) or hold > MAX_HOLD:
            raise ConfigurationError(
                _("EMS['HTTP_HOLD_SECONDS_WSGI'] must be a number of seconds from 0 to %d.")
                % MAX_HOLD
            )
        if not isinstance(self.HTTP_INSECURE, bool):
            raise ConfigurationError(_("EMS['HTTP_INSECURE'] must be True or False."))
        networks: Any = self.HTTP_METRICS_FROM
        if not isinstance(networks, list | tuple) or not all(map(_is_network, networks)):
            raise ConfigurationError(
                _("EMS['HTTP_METRICS_FROM'] must be a list of addresses or networks.")
            )
        if not isinstance(self.STRESS, bool):
            raise ConfigurationError(_("EMS['STRESS'] must be True or False."))
        if self.SITE_URL is not None and not _is_site(self.SITE_URL):
            raise ConfigurationError(
                _("EMS['SITE_URL'] must be an address such as “https://ops.example.com”, or None.")
            )
        topic: Any = self.TWO_PHASE_TOPIC
        if topic is not None and (not isinstance(topic, str) or not topic.strip()):
            raise ConfigurationError(_("EMS['TWO_PHASE_TOPIC'] must be a topic, or None."))
        state_dir: Any = self.STATE_DIR
        if not isinstance(state_dir, str | Path) or not str(state_dir):
            raise ConfigurationError(_("EMS['STATE_DIR'] must be the path of a folder."))
        if self.DATABASE not in django_settings.DATABASES:
            raise ConfigurationError(_("EMS['DATABASE'] %r is not in DATABASES.") % self.DATABASE)
        self._check_shards()
        if self.REDIS is not None and self.REDIS not in django_settings.CACHES:
            raise ConfigurationError(_("EMS['REDIS'] %r is not in CACHES.") % self.REDIS)

    def _check_shards(self) -> None:
        shards: Any = self.SHARDS
        if not isinstance(shards, Mapping):
            raise ConfigurationError(_("EMS['SHARDS'] must be a dict of topics and aliases."))
        for topic, alias in shards.items():
            # A name without a rest, or a prefix that ends with a dot: "logs.*".
            name = topic.removesuffix(f".{ANY_REST}") if isinstance(topic, str) else ""
            if not name.strip() or ANY_REST in name:
                raise ConfigurationError(
                    _("EMS['SHARDS'] has %r: say a topic, or a prefix such as “logs.*”.") % (topic,)
                )
            if alias not in django_settings.DATABASES:
                raise ConfigurationError(
                    _("EMS['SHARDS'] has %r, which is not in DATABASES.") % (alias,)
                )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def _positive(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and value > 0


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


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and "." in value


def load(path: str, setting: str) -> Callable[..., Any]:
    """Import what the dotted ``path`` of a setting names; raises ConfigurationError.

    An ImportError inside the module that it names is one of these, too.
    """
    try:
        found = import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            _("EMS[%(setting)r] names %(path)s, which cannot be imported: %(error)s")
            % {"setting": setting, "path": path, "error": error}
        ) from error
    if not callable(found):
        raise ConfigurationError(
            _("EMS[%(setting)r] names %(path)s, which cannot be called.")
            % {"setting": setting, "path": path}
        )
    return cast("Callable[..., Any]", found)


_settings: Settings | None = None


def settings() -> Settings:
    """Return the validated ``EMS`` settings; raises ConfigurationError."""
    global _settings
    if _settings is None:
        given = getattr(django_settings, "EMS", {})
        if not isinstance(given, dict):
            raise ConfigurationError(_("The setting EMS must be a dict, not %r.") % (given,))
        known = [field.name for field in fields(Settings)]
        for name in given:
            if name not in known:
                close = get_close_matches(name, known, n=1, cutoff=0.5)
                hint = _(" Did you mean %r?") % close[0] if close else ""
                raise ConfigurationError(_("Unknown key %r in the setting EMS.") % name + hint)
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
