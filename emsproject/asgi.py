"""Makes the application for an ASGI server: ``emsproject.asgi:application``."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "emsproject.settings")

application = get_asgi_application()
