"""Exposes EMS to Prometheus. Needs the extra ``metrics``.

The names below are loaded on first use: without prometheus-client that raises ConfigurationError.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from streams.errors import ConfigurationError
from streams.logs import event

if TYPE_CHECKING:
    from streams.metrics.collector import EmsCollector
    from streams.metrics.exposition import view
    from streams.metrics.process import REGISTRY

logger = logging.getLogger("streams.metrics")

_HOME = {
    "EmsCollector": "streams.metrics.collector",
    "REGISTRY": "streams.metrics.process",
    "view": "streams.metrics.exposition",
}

__all__ = ["REGISTRY", "EmsCollector", "view"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need_client()
    return getattr(import_module(_HOME[name]), name)


def start_if_shared() -> None:
    """Count what this process does if the processes of this host share their metrics in a folder.

    That is prometheus-client's own way for a web server of several processes.
    """
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR") and find_spec("prometheus_client"):
        from streams.metrics import process

        process.start()


def show_consumer(at: tuple[str, int], fleet: Any) -> None:
    """Count what this process does, and show it on ``at``; raises ConfigurationError."""
    need_client()
    from streams.metrics import process
    from streams.metrics.consumer import ConsumerCollector
    from streams.metrics.exposition import serve

    process.start()
    now = ConsumerCollector(fleet.work, fleet.client_ids)
    server = serve(at, process.REGISTRY, now)
    host, port = server.server_address[:2]
    logger.info("Metrics: http://%s:%d/metrics", host, port, extra=event("metrics.shown"))


def need_client() -> None:
    """Raise ConfigurationError if prometheus-client is not installed."""
    if find_spec("prometheus_client") is None:
        raise ConfigurationError(
            "Metrics need prometheus-client: install the extra “metrics”: django-ems[metrics]."
        )
