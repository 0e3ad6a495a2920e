"""Says where the page of an alarm is, for those who read of it outside the admin."""

from __future__ import annotations

from django.apps import apps
from django.urls import reverse

from monitoring.models import Alarm
from streams.conf import settings
from streams.sharding import is_sharded

# What the sites framework writes into a new installation: nobody's address.
NOBODY = "example.com"


def page_of(alarm: Alarm | None) -> str:
    """Return the address of the page with this alarm, or of the page of all alarms.

    It is empty if neither EMS["SITE_URL"] nor the sites framework says where the project is, or if
    the admin is not in its URLs.
    """
    try:
        site = _site()
        path = reverse("admin:ems_monitoring_overview_alarms")
    except Exception:  # noqa: BLE001 - of URLs and settings of the project: without, it is sent, too
        return ""
    if not site or alarm is None:
        return site and f"{site}{path}"
    database = f"?database={alarm._state.db}" if is_sharded() else ""
    return f"{site}{path}{database}#alarm-{alarm.pk}"


def _site() -> str:
    """Return the scheme and the host of the project; "" if nothing says them."""
    if given := settings().SITE_URL:
        return given.rstrip("/")
    if not apps.is_installed("django.contrib.sites"):
        return ""
    from django.contrib.sites.models import Site

    domain = Site.objects.get_current().domain
    return "" if domain == NOBODY else f"https://{domain}"
