"""Defines ems_plan, which says how many servers, processes and connections a rate needs."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict, fields
from typing import Any

from streams.management.base import StreamsCommand
from streams.sizing.costs import costs
from streams.sizing.plan import Wish, plan

OPTIONS = {
    "rate": "messages a second, at the peak",
    "groups": "groups that handle each message",
    "size": "bytes of a body",
    "cores": "processors of a database server",
    "batch": "messages of a call, of the producer and of the handler",
    "retention_days": "days that messages are kept",
    "handler_seconds": "seconds that the handler works on a message",
}


class Command(StreamsCommand):
    help = "How many servers, processors, connections and bytes of disk a rate of messages needs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        defaults = {one.name: one.default for one in fields(Wish)}
        for name, text in OPTIONS.items():
            kind = float if name in ("rate", "retention_days", "handler_seconds") else int
            option = f"--{name.replace('_', '-')}"
            if name == "rate":
                parser.add_argument(option, type=kind, required=True, help=text)
            else:
                default: Any = defaults[name]
                parser.add_argument(
                    option, type=kind, default=default, metavar="N", help=f"{text} ({default})"
                )

    def run(self, **options: Any) -> None:
        wish = Wish(**{name: options[name] for name in OPTIONS})
        lines, measured = list(plan(wish)), costs().measured
        if self.as_json:
            found = [asdict(line) for line in lines]
            self.write_json({"wish": asdict(wish), "plan": found, "measured": measured})
            return
        self.show(
            ("needs", "", "known by"),
            ((line.what, figure(line.value), line.known) for line in lines),
        )
        text = "Measured on {server}, {cores} cores ({processor}), {date}, commit {commit}."
        self.stdout.write(text.format(**measured))


def figure(value: float) -> str:
    """Return a figure with three digits, or with all of a whole or large number."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
