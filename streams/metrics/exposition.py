"""Shows the metrics to a scraper: as a view of the project, or on a port of its own."""

from __future__ import annotations

import os
from functools import cache
from wsgiref.simple_server import WSGIServer

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from streams.conf import settings
from streams.errors import ConfigurationError
from streams.metrics import process
from streams.metrics.collector import EmsCollector

PERMISSION = "ems.view_metrics"
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


def registry(*collectors: Collector | CollectorRegistry) -> CollectorRegistry:
    """Return a registry with these collectors alone."""
    made = CollectorRegistry(support_collectors_without_names=True)
    for collector in collectors:
        made.register(collector)
    return made


@cache
def _of_a_web_process() -> CollectorRegistry:
    process.start()  # a process that nobody scrapes counts nothing
    of_tables = EmsCollector()
    if os.environ.get(MULTIPROCESS):
        made = registry(of_tables)
        MultiProcessCollector(made)  # type: ignore[no-untyped-call]
        return made
    return registry(of_tables, process.REGISTRY)


@require_safe
def view(request: HttpRequest) -> HttpResponse:
    """Show the metrics to who sends ``EMS["METRICS_TOKEN"]`` or has the permission view_metrics.

    Anybody else gets a 404. Shown are the metrics of the tables, on all aliases that have topics,
    and those of this process, or with PROMETHEUS_MULTIPROC_DIR of all processes that share that
    folder.
    """
    if not (_has_token(request) or _has_permission(request)):
        raise Http404
    body, content_type = encoded(request.headers.get("Accept", ""))
    return HttpResponse(body, content_type=content_type)


def encoded(accept: str) -> tuple[bytes, str]:
    """Return the metrics as a scraper ``accept``s them, and their content type."""
    encode, content_type = choose_encoder(accept)
    return encode(_of_a_web_process()), content_type


def _has_token(request: HttpRequest) -> bool:
    token = settings().METRICS_TOKEN
    scheme, _blank, given = request.headers.get("Authorization", "").partition(" ")
    return token is not None and scheme == "Bearer" and constant_time_compare(given, token)


def _has_permission(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return user is not None and bool(user.has_perm(PERMISSION))


def serve(address: tuple[str, int], *collectors: Collector | CollectorRegistry) -> WSGIServer:
    """Show ``collectors`` on ``address`` from a thread of this process; return the server.

    Raises ConfigurationError if the address cannot be listened on.
    """
    host, port = address
    try:
        server, _thread = start_http_server(port, host, registry(*collectors))
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {host}:{port} for the metrics: {error.strerror or error}"
        ) from error
    return server
