"""Defines the URLs of the API: ``path("ems/", include("streams.http.urls"))``."""

from __future__ import annotations

from importlib.util import find_spec

from django.core.exceptions import ImproperlyConfigured

if find_spec("ninja") is None:
    raise ImproperlyConfigured(
        "The HTTP API of EMS needs django-ninja: pip install 'django-ems[api]'"
    )

from streams.http.app import url_patterns

app_name = "ems_http"
urlpatterns = url_patterns()
