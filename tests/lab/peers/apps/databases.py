"""Makes the database of a peer that is a Django app."""

from __future__ import annotations

from django.core.management import call_command
from django.db import connection


def make() -> None:
    name = connection.settings_dict["NAME"]
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    call_command("migrate", verbosity=0)
