"""Defines ems_stress, which loads the server for a minute and says what it can do."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from streams.conf import make_sure_enabled
from streams.management.base import UNKNOWN, StreamsCommand, duration, positive
from streams.models.stress_run import PREFIX
from streams.operate.topics import create
from streams.runtime_settings import system
from streams.stress import (
    ConsumerEnded,
    Load,
    Stress,
    StressResult,
    carry_out,
    delete,
    ended_by_signals,
)

DEFAULT_MESSAGES = 10_000


class Command(StreamsCommand):
    help = (
        "Send messages from several processes, consume them, count and measure, and delete all of"
        " it again. Only topics whose names begin with “stress.”."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--topic", default=f"{PREFIX}ems", help="begins with “stress.”")
        parser.add_argument("--partitions", type=positive, default=1, help="how many (1)")
        parser.add_argument("--messages", type=positive, help="end after this many (10,000)")
        parser.add_argument("--seconds", type=duration, help="end after this time")
        parser.add_argument("--size", type=positive, default=1024, help="bytes of each body (1024)")
        parser.add_argument("--writers", type=positive, default=4, help="processes that send (4)")
        parser.add_argument(
            "--rate", type=positive, help="messages a second, of all writers; else all they can"
        )
        parser.add_argument(
            "--groups", type=int, default=1, help="groups that consume; 0: none (1)"
        )

        parser.add_argument(
            "--run", type=positive, metavar="ID", help="what was asked for over HTTP"
        )

    def run(self, **options: Any) -> None:
        if options["run"] is not None:
            carry_out(options["run"], self.using)
            return
        load = self._load(**options)
        make_sure_enabled()  # before its topic is made
        create(load.topic, options["partitions"], self.using)
        try:
            with ended_by_signals():
                result = Stress(load, self.using, self._show_left).run()
        except ConsumerEnded:
            raise CommandError("The consumer process has ended by itself: see its log.") from None
        except KeyboardInterrupt:
            raise CommandError("Ended before the figures were complete.") from None
        finally:
            self.progress("deleting what was written")
            delete(load.topic, self.using)
            self.progress("")
        self._show(load, result)
        if not result.sound:
            raise CommandError("Messages are missing: see above.")

    def _load(
        self,
        *,
        topic: str,
        messages: int | None,
        seconds: Any,
        size: int,
        writers: int,
        rate: int | None,
        groups: int,
        **options: Any,
    ) -> Load:
        if not topic.startswith(PREFIX):
            raise CommandError(f"The name of the topic must begin with “{PREFIX}”.")
        if groups < 0:
            raise CommandError("A number of groups cannot be negative.")
        if size > (limit := system("msgMaxSizeInBytes", self.using)):
            raise CommandError(f"A body may have at most {limit} bytes (msgMaxSizeInBytes).")
        if messages is None and seconds is None:
            messages = DEFAULT_MESSAGES
        return Load(
            topic=topic,
            messages=messages,
            seconds=None if seconds is None else seconds.total_seconds(),
            size=size,
            writers=writers,
            rate=rate,
            groups=groups,
        )

    def _show_left(self, left: str) -> None:
        self.progress(f"{left} messages left to consume")

    def _show(self, load: Load, result: StressResult) -> None:
        self.progress("")
        if self.as_json:
            self.write_json({**asdict(load), **asdict(result), "sound": result.sound})
            return
        rate = result.accepted / result.sending_seconds if result.sending_seconds else 0.0
        values: dict[str, Any] = {
            "accepted": f"{result.accepted:,} ({rate:,.0f}/s)",
            "committed": f"{result.committed:,}",
            "sequenced": f"{result.sequenced:,}",
            "errors": _counted(result.errors) or "0",
            "send, ms": _spread(result.send_ms),
        }
        if load.groups:
            rate = load.groups * result.sequenced / result.consuming_seconds
            values |= {
                "consumed": f"{sum(result.consumed.values()):,} ({rate:,.0f}/s)",
                "missing": f"{sum(result.missing.values()):,}",
                "repeated": f"{sum(result.repeated.values()):,}",
                "send to handler, ms": _spread(result.delivery_ms),
            }
        values["processor of the clients, s"] = f"{result.processor_seconds:,.1f}"
        if result.row_lock_waits is not None:
            values["row-lock waits of the server"] = (
                f"{result.row_lock_waits:,} ({result.row_lock_wait_seconds:,.1f} s)"
            )
        self.show_one(values)


def _counted(errors: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(errors.items()))


def _spread(milliseconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in milliseconds.items()) or UNKNOWN
