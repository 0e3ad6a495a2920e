"""Runs a client that pulls over HTTP: ``python -m tests.lab.scenarios.puller NAME PORT``.

It records what it is handed, as the consumers do. The token is in EMS_SCENARIO_TOKEN.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import django

django.setup()

from django.db import Error, connection  # noqa: E402 - needs the apps

from streams.http.client import Client, Message  # noqa: E402
from tests.lab.scenarios.consumers import INSERT  # noqa: E402

TOPIC, GROUP = "A", "Pulled"


def record(message: Message) -> None:
    producer, n = message.body
    values = (TOPIC, GROUP, message.partition, message.offset, producer, n, os.getpid())
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                INSERT.format("(%s, %s, %s, %s, %s, %s, %s, 1, UTC_TIMESTAMP(6))"), values
            )
    except Error:
        with suppress(Error):
            connection.close()
        raise


def main(name: str, port: str) -> None:
    client = Client(f"http://127.0.0.1:{port}/ems", os.environ["EMS_SCENARIO_TOKEN"])
    print("pulls", flush=True)
    client.consume(TOPIC, GROUP, record, client=name, batch=50, hold=5, timeout=20)


if __name__ == "__main__":
    main(*sys.argv[1:])
