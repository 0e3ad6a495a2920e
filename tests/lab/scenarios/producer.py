"""Runs a producer process: ``python -m tests.lab.scenarios.producer NAME A=500 B=500``.

Sends each message in a transaction with its business row. With ``--doomed`` it sends all of them
in one transaction, says so, and waits to be killed before the commit.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import django

django.setup()

from django.db import Error, connection, transaction  # noqa: E402 - needs the apps

from streams import StreamsError, send  # noqa: E402
from tests.lab.scenarios.models import Sent  # noqa: E402

PATIENCE_SECONDS = 60
KEYS = 63  # of each producer: some 500 of all eight


def send_one(topic: str, producer: str, n: int) -> None:
    with transaction.atomic():
        Sent.objects.create(topic=topic, producer=producer, n=n)
        send(topic, [producer, n], key=f"{producer}:{n % KEYS}")


def insist(topic: str, producer: str, n: int) -> None:
    """Send it, also through an outage: the business row tells whether it was committed."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if not Sent.objects.filter(topic=topic, producer=producer, n=n).exists():
                send_one(topic, producer, n)
            return
        except (Error, StreamsError):
            if time.monotonic() > limit:
                raise
            with suppress(Error):
                connection.close()
            time.sleep(0.2)


def main(name: str, counts: dict[str, int], *, doomed: bool) -> None:
    if doomed:
        with transaction.atomic():
            for topic, count in counts.items():
                for n in range(count):
                    send_one(topic, name, n)
            print("doomed", flush=True)
            time.sleep(PATIENCE_SECONDS)
    for n in range(max(counts.values())):
        for topic, count in counts.items():
            if n < count:
                try:
                    send_one(topic, name, n)
                except (Error, StreamsError):
                    insist(topic, name, n)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--doomed"]
    pairs = (word.partition("=") for word in words[1:])
    main(words[0], {topic: int(n) for topic, _, n in pairs}, doomed="--doomed" in sys.argv)
