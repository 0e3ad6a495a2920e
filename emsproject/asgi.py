"""Makes the application for an ASGI server: ``emsproject.asgi:application``."""

import os

from django.core.asgi import get_asgi_application

from streams.http.asgi import refusing_early

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "emsproject.settings")

application = refusing_early(get_asgi_application())
