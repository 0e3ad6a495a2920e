"""Runs ems_consume where the tests of django-tasks-db start db_worker, with options of that."""

from __future__ import annotations

import logging
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    drain = ["--drain"] if "--batch" in sys.argv else []
    execute_from_command_line(["", "ems_consume", "--no-supervisor", "--skip-checks", *drain])
