"""A project without django.contrib.admin: EMS works, and asks for nothing of it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "streams"],
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
)
import sys
import django
django.setup()
from django.core.management import call_command
from django.template import engines
assert engines["django"].from_string("{{ 1 }}").render({}) == "1"
call_command("check")
call_command("migrate", verbosity=0)
from streams import send
message = send("orders", {"n": 1}).message_id
call_command("ems_messages", "show", str(message))
call_command("ems_dead", "list")
assert "django.contrib.admin" not in sys.modules
"""


def test_templates_and_commands_need_no_admin():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '{"n":1}' in done.stdout
