"""Says whether EMS is ready, and its metrics."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status

from streams.conf import database, settings
from streams.http import threads
from streams.http.access import identified, open_to_all
from streams.http.fields import Answer
from streams.http.problems import Problem
from streams.observe.diagnoses import ERROR
from streams.observe.doctor import ready

router = Router(tags=["Health"])


class Health(Answer):
    ready: bool


@router.get("/healthz", response={200: Health, 503: Health})
@open_to_all
async def show_health(request: HttpRequest) -> Status[Health]:
    """Tell a probe whether the database answers with the schema of this code: 200 or 503."""
    is_ready = await threads.for_a_probe(_is_ready)
    return Status(200 if is_ready else 503, Health(ready=is_ready))


@router.get("/metrics", include_in_schema=True)
@open_to_all
async def show_metrics(request: HttpRequest) -> HttpResponse:
    """Give the metrics for Prometheus: to a token with the right `look`, or to an address of
    `EMS["HTTP_METRICS_FROM"]`.
    """
    if not _is_listed(str(request.META.get("REMOTE_ADDR", ""))):
        (await identified(request)).needs("look")
    content, content_type = await threads.on_a_thread(_metrics, request.headers.get("Accept", ""))
    return HttpResponse(content, content_type=content_type)


def _is_ready() -> bool:
    return not any(one.level == ERROR for one in ready(database()))


def _is_listed(address: str) -> bool:
    try:
        given = ip_address(address)
    except ValueError:  # a socket of the host
        return False
    return any(given in ip_network(one) for one in settings().HTTP_METRICS_FROM)


def _metrics(accept: str) -> tuple[bytes, str]:
    try:
        from streams.metrics.exposition import encoded
    except ImportError:
        raise Problem(
            404, "not_found", "The metrics need prometheus-client: the extra “metrics”."
        ) from None
    return encoded(accept)
