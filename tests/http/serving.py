"""Serves the API of the test database in real servers; see the fixture ``web``."""

from __future__ import annotations

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from streams.http.asgi import refusing_early

settings.ALLOWED_HOSTS = ["127.0.0.1"]

asgi = refusing_early(get_asgi_application())
wsgi = get_wsgi_application()
