"""Prepares messages at a steady rate: ``python -m tests.lab.scenarios.caller NAME RATE``.

Each has a business row in another transaction. One in four ends as it should not: nobody commits or
rolls back. It prints a line for each answer that it got, which must then be true for ever.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import django

django.setup()

from django.db import Error, connection, transaction  # noqa: E402 - needs the apps

from streams import Prepared, StreamsError, prepare  # noqa: E402
from tests.lab.scenarios.models import Sent  # noqa: E402
from tests.lab.scenarios.preparing import CHECKER, TOPIC  # noqa: E402

# Seconds until the first check: a caller that lives has decided long before, most of the time.
CHECK_AFTER = 1.0


class Work(Exception):
    """Is why the work of a message is rolled back."""


def worked(name: str, n: int) -> None:
    Sent.objects.create(topic=TOPIC, producer=name, n=n)


def commits(held: Prepared, name: str, n: int) -> None:
    with transaction.atomic():
        worked(name, n)
    held.commit()
    say("committed", name, n)


def joins(held: Prepared, name: str, n: int) -> None:
    """The decision is a part of the transaction of the work."""
    with transaction.atomic():
        worked(name, n)
        held.commit()
    say("committed", name, n)


def rolls_back(held: Prepared, name: str, n: int) -> None:
    with suppress(Work), transaction.atomic():
        worked(name, n)
        held.commit()
        raise Work
    held.rollback()
    say("rolled back", name, n)


def forgets(held: Prepared, name: str, n: int) -> None:
    """The work is done or rolled back, and only a check-back can say so."""
    with suppress(Work), transaction.atomic():
        worked(name, n)
        if n % 8 == 3:
            raise Work


WAYS: tuple[Callable[[Prepared, str, int], None], ...] = (commits, joins, rolls_back, forgets)


def say(what: str, name: str, n: int) -> None:
    os.write(1, f"{name}: {what} {n}\n".encode())


def main(name: str, rate: float) -> None:
    n, begun = 0, time.monotonic()
    while True:
        n += 1
        time.sleep(max(0.0, begun + n / rate - time.monotonic()))
        try:
            body = [name, n]
            held = prepare(
                *(TOPIC, body), biz=name, biz_key=n, checker=CHECKER, check_after=CHECK_AFTER
            )
            say("prepared", name, n)
            WAYS[n % len(WAYS)](held, name, n)
        except (Error, StreamsError) as error:  # what became of it, the check-back finds out
            print(f"{n}: {error!r}", file=sys.stderr, flush=True)
            with suppress(Error):
                connection.close()


if __name__ == "__main__":
    # A process that is started again is another producer: it begins with 1.
    main(f"{sys.argv[1]}-{os.getpid()}", float(sys.argv[2]))
