"""Makes the application for a WSGI server: ``emsproject.wsgi:application``."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "emsproject.settings")

application = get_wsgi_application()
