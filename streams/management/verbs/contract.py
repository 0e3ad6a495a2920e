"""Defines the verbs schema and asyncapi of ems_topics."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from streams.management.base import StreamsCommand
from streams.observe.contract.asyncapi import document
from streams.observe.contract.json_schema import differ, json_schema, said
from streams.observe.contract.types import types_of
from streams.typed.spark import spark_type


class ContractVerbs(StreamsCommand):
    """The verbs that say what the bodies of topics are."""

    def add_schema_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", help="name of the topic")
        parser.add_argument("--group", help="only what this group expects")
        parser.add_argument(
            "--spark", action="store_true", help="as a type for from_json() of Spark"
        )

    def add_asyncapi_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--title", help="title of the document, by default that of the project")
        parser.add_argument("--release", default="1", help="version of the document (1)")
        parser.add_argument("--output", metavar="FILE", help="write it into this file")

    def do_schema(self, *, topic: str, group: str | None, spark: bool, **options: Any) -> None:
        types = types_of(topic)
        if group is not None:
            types = {name: one for name, one in types.items() if name == group}
        if not types:
            who = f"Group {group}" if group else "No consumer"
            says = "says no type" if group else "says a type"
            raise CommandError(f"{who} of {topic} {says} of its bodies: @consumer(…, body=…).")
        if differ(types):
            if spark:
                raise CommandError(f"{said(types)} Say --group.")
            self.stderr.write(said(types), style_func=str)
        schema = json_schema(types)
        if spark:
            self.stdout.write(spark_type(schema))
        else:
            self.write_json(schema)

    def do_asyncapi(
        self, *, title: str | None, release: str, output: str | None, **options: Any
    ) -> None:
        project = (settings.SETTINGS_MODULE or "Django").partition(".")[0]
        found = document(title or project, release)
        if output is None:
            self.write_json(found)
            return
        try:
            Path(output).write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise CommandError(f"The file cannot be written: {error}") from error
        counts = {name: len(found[name]) for name in ("channels", "operations")}
        self.tell(f"written: {output}", output=output, **counts)
