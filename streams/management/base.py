"""Defines what the commands of EMS have in common."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import time
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import Error, InterfaceError, OperationalError, connections
from django.db.models import Model
from django.utils.formats import number_format

from streams import body as bodies
from streams.conf import database, working_on
from streams.database.retrying import error_number, tables_missing
from streams.database.transactions import committing
from streams.durations import parse_duration
from streams.errors import (
    InvalidDuration,
    InvalidPlace,
    NotMigrated,
    StreamsError,
    UnknownGroup,
    UnknownTopic,
    storable,
)
from streams.log.places import PLACE, LogPlace, message_name
from streams.management.checking import CheckedUnconnected
from streams.models import IMMEDIATE, ConsumerGroup, DeadMessage, Message
from streams.nouns.noun import Noun, NounEncoder
from streams.observe.mysql_server import models
from streams.sharding import alias_of, aliases, home_of

UNKNOWN = "–"
CLEAR_LINE = "\r\x1b[K"
CLEAR_SCREEN = "\x1b[H\x1b[J"
# Columns and fields whose numbers are names, which people copy into another command.
NAMING = {
    *("id", "message_id", "offset", "partition", "replay", "redrive", "first", "end"),
    *("from", "to", "value", "default"),
}
# The highest number that a BIGINT column can have.
MOST = 2**63 - 1
# A value of an option that is taken from the environment: what stands in the command is seen in the
# list of processes.
FROM_ENVIRONMENT = "env:"
# The error number of MySQL and MariaDB when a table does not exist.
NO_TABLE = 1146


class StreamsCommand(CheckedUnconnected):
    """A command with ``--database``, ``--json`` and, if it has ``verbs``, sub-commands.

    ``verbs`` maps each sub-command to its help; the method ``do_VERB`` runs it. Without verbs
    ``run`` does. Errors of EMS and of the database are shown as one line with exit status 1.
    """

    verbs: Mapping[str, Any] = {}  # texts, translated when they are shown
    # The verbs that take --all-databases; "" is a command without verbs.
    everywhere: frozenset[str] = frozenset()
    # What they have found so far: the columns, the rows with their database, and by what to sort.
    _gathered: _Gathered | None = None
    status = 0  # of the process, once all is printed

    def add_arguments(self, parser: ArgumentParser) -> None:
        if not self.verbs:
            self._add_common(parser)
            self._add_everywhere(parser, "")
            return
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(self.verbs))
        for verb, lazy in self.verbs.items():
            text = str(lazy)  # argparse takes no lazy ones
            sub = verbs.add_parser(verb, help=text, description=text)
            self._add_common(sub)
            self._add_everywhere(sub, verb)
            _add_django(sub)
            self.add_verb_arguments(verb, sub)

    def add_verb_arguments(self, verb: str, parser: ArgumentParser) -> None:
        getattr(self, f"add_{verb}_arguments", lambda parser: None)(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        self.as_json: bool = options["json"]
        _check_text(options.values())
        try:
            self.using = known_alias(self._alias(options))
            self._run(options)
            self.stdout.flush()
            if self.status:
                sys.exit(self.status)
        except BrokenPipeError:
            # The reader of the output, such as ``head``, has ended. What is left to write, also at
            # the end of the process, goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except StreamsError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            if tables_missing(error):
                raise CommandError(str(NotMigrated.on(self.using))) from error
            if error_number(error) == NO_TABLE or "no such table" in str(error):
                text = "A table is missing (%s): run “manage.py migrate”."
                raise CommandError(text % error) from error
            if isinstance(error, OperationalError | InterfaceError):
                raise CommandError(f"The database says: {error}") from error
            raise

    @property
    def in_a_shell(self) -> bool:
        """Whether manage.py runs the command, and not ``call_command``."""
        return bool(getattr(self, "_called_from_command_line", False))

    @property
    def home(self) -> str:
        """The alias of what is the same for all shards; their own rows are copies of it."""
        return home_of(self.using)

    def validate(self, row: Model, using: str, **options: Any) -> None:
        """Raise CommandError if the row could not be saved on ``using``; see ``full_clean``."""
        row._state.db = using
        try:
            # Django asks the project's routers where the other rows are.
            with working_on(using):
                row.full_clean(**options)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error

    def named_topic(self, options: Mapping[str, Any]) -> str | None:
        """Return the topic that the arguments name, or None."""
        topic = options.get("topic")
        return topic if isinstance(topic, str) else None

    def _alias(self, options: Mapping[str, Any]) -> str:
        """Return the alias to work on: ``--database``, or that of the topic that is named."""
        if options["database"] and options.get("all_databases"):
            raise CommandError("Say --database or --all-databases, not both.")
        topic = self.named_topic(options)
        return database(options["database"] or (alias_of(topic) if topic else None))

    def _run(self, options: dict[str, Any]) -> None:
        """Run the command once, or with ``--watch`` until Ctrl-C."""
        seconds: int | None = options.get("watch")
        if seconds is None:
            self._run_once(options)
            return
        try:
            while True:
                self._begin_look()
                self._run_once(options)
                self.stdout.flush()
                time.sleep(seconds)
        except KeyboardInterrupt:
            return

    def _run_once(self, options: dict[str, Any]) -> None:
        if options.get("all_databases"):
            self._run_everywhere(options)
            return
        with working_on(self.using), committing(self.using), committing(self.home):
            self.run(**options)

    def _run_everywhere(self, options: dict[str, Any]) -> None:
        """Run the command on each alias, and show what they have found together.

        An alias that cannot be reached does not keep the others from being shown, and what is named
        need not be on all of them.
        """
        self._gathered = gathered = _Gathered()
        failed: tuple[str, Error] | None = None
        unknown: list[UnknownGroup | UnknownTopic] = []
        for alias in aliases():
            self.using = alias
            if not (self.verbs or self.as_json):
                self.stdout.write(f"{alias}:")
            try:
                with working_on(alias), committing(alias):
                    self.run(**options)
            except Error as error:
                failed = (alias, error)
            except (UnknownGroup, UnknownTopic) as error:
                unknown.append(error)
        self._gathered = None
        if len(unknown) == len(aliases()):
            raise unknown[0]
        if gathered.values:
            self.write_json(gathered.values)
        elif gathered.columns:
            self.show(("database", *gathered.columns), gathered.rows, gathered.sort)
        if failed:
            self.using = failed[0]
            raise failed[1]

    def _begin_look(self) -> None:
        if self.stdout.isatty():
            self.stdout.write(CLEAR_SCREEN, ending="")
        if not self.as_json:
            self.stdout.write(line(datetime.now(UTC)))

    def run(self, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def _add_common(self, parser: ArgumentParser) -> None:
        text = "database alias, that of the topic or EMS['DATABASE'] by default"
        parser.add_argument("--database", help=text)
        parser.add_argument("--json", action="store_true", help="print JSON")

    def _add_everywhere(self, parser: ArgumentParser, verb: str) -> None:
        if verb in self.everywhere:
            text = "all databases that have topics, by EMS['SHARDS']"
            parser.add_argument("--all-databases", action="store_true", help=text)

    @property
    def who(self) -> str:
        """Return who runs the command, for the log: the account, the host and the command."""
        try:
            account = getpass.getuser()
        except (KeyError, OSError):  # a container whose user has no name
            account = str(os.getuid())
        return f"{account}@{socket.gethostname()} ({type(self).__module__.rpartition('.')[2]})"

    # -- what they print --

    def show(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], sort: str | None = None
    ) -> None:
        """Print a table, or with ``--json`` a list of objects.

        ``sort`` is a column: the largest numbers and the newest times come first, texts in
        alphabetical order, and what is unknown last.
        """
        if self._gathered is not None:
            self._gathered.add(self.using, columns, rows, sort)
            return
        heads = [head(name) for name in columns]
        if sort is not None:
            rows = sorted_by(heads.index(sort), rows)
        if self.as_json:
            self.write_json([dict(zip(columns, row, strict=True)) for row in rows])
            return
        lines = ([cell(*pair) for pair in zip(columns, row, strict=True)] for row in rows)
        cells = [heads, *lines]
        widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
        for row in cells:
            padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            self.stdout.write("  ".join(padded).rstrip())

    def show_nouns(
        self, nouns: Iterable[Noun], columns: Sequence[str], sort: str | None = None
    ) -> None:
        """Print these columns as a table, or with ``--json`` all of them as a list of objects."""
        found = list(nouns)
        if self.as_json and found:
            columns = found[0].columns()
        self.show(columns, ([getattr(one, name) for name in columns] for one in found), sort)

    def show_one(self, values: Mapping[str, Any], *texts: str) -> None:
        """Print the ``values`` of one thing, and after them longer ``texts``."""
        if self.as_json:
            self.write_json(values)
            return
        width = max(map(len, values))
        for name, value in values.items():
            self.stdout.write(f"{name.ljust(width)}  {cell(name, value)}")
        for text in texts:
            self.stdout.write("\n" + printable(text))

    def show_noun(self, noun: Noun, **texts: str) -> None:
        """Print one with all its columns; but those in ``texts`` after it, as these texts."""
        values = vars(noun)
        if not self.as_json:
            values = {name: value for name, value in values.items() if name not in texts}
        self.show_one(values, *filter(None, texts.values()))

    def tell(self, text: str, **values: Any) -> None:
        """Print what was done: ``text``, or with ``--json`` an object of ``values``."""
        if self.as_json:
            self.write_json(values)
        else:
            self.stdout.write(text)

    def write_json(self, value: Any) -> None:
        if self._gathered is not None:
            self._gathered.values.append({"database": self.using, **value})
            return
        self.stdout.write(json.dumps(value, cls=NounEncoder, indent=2, ensure_ascii=False))

    @property
    def can_ask(self) -> bool:
        """Tell whether somebody reads a question and can answer it."""
        return not self.as_json and sys.stdin.isatty()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask on the terminal whether to go on, unless ``yes``; raises CommandError if not."""
        if yes:
            return
        if not self.can_ask:
            raise CommandError("Nothing was done: without a terminal to ask, say --yes.")
        self.stdout.flush()
        self.stderr.write(f"{question} [y/N] ", ending="", style_func=str)
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.")

    def progress(self, text: str) -> None:
        """Show the progress on a terminal; an empty text removes it."""
        if self.stderr.isatty():
            self.stderr.write(CLEAR_LINE + text, ending="", style_func=str)

    # -- what they look for --

    def groups(self, name: str | None = None, topic: str | None = None) -> list[ConsumerGroup]:
        """Return the groups of this name on this topic; raises UnknownGroup if none matches."""
        chosen = ConsumerGroup.objects.using(self.using).select_related("topic")
        if name:
            chosen = chosen.filter(name=name)
        if topic:
            chosen = chosen.filter(topic__name=topic)
        found = list(chosen.order_by("topic__name", "name"))
        if not found and (name or topic):
            wanted = " on ".join(filter(None, (name or "any name", topic)))
            raise UnknownGroup(f"There is no group {wanted}.")
        return found

    def group(self, name: str, topic: str | None = None) -> ConsumerGroup:
        """Return the one group of this name; ``topic`` is needed if several topics have one.

        Raises UnknownGroup, and CommandError if several have one.
        """
        found = self.groups(name, topic)
        if len(found) > 1:
            topics = ", ".join(one.topic.name for one in found)
            raise CommandError(f"{name} is on several topics: say which with --topic ({topics}).")
        return found[0]


@dataclass
class _Gathered:
    """What a command has found on several aliases: a table, or JSON objects."""

    columns: Sequence[str] = ()
    rows: list[Sequence[Any]] = field(default_factory=list)
    sort: str | None = None
    values: list[Mapping[str, Any]] = field(default_factory=list)

    def add(
        self, alias: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], sort: str | None
    ) -> None:
        found = [(alias, *row) for row in rows]
        if found or not self.columns:  # those of JSON are told by the rows
            self.columns, self.sort = columns, sort
        self.rows += found


def add_dry_run(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def add_limit(parser: ArgumentParser, default: int | None = None) -> None:
    text = "at most this many" + (f" ({default})" if default else "")
    parser.add_argument("--limit", type=positive, default=default, help=text)


def add_yes(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def add_sort(parser: ArgumentParser, columns: Iterable[str]) -> None:
    text = "sort by this column: the largest and the newest first"
    names = [head(name) for name in columns]
    parser.add_argument("--sort", choices=names, metavar="COLUMN", help=text)


def add_watch(parser: ArgumentParser) -> None:
    text = "show it again after this number of seconds, until Ctrl-C"
    parser.add_argument("--watch", type=positive, metavar="SECONDS", help=text)


def known_alias(using: str) -> str:
    """Return the alias if the project has it; raises CommandError."""
    if using not in connections:
        raise CommandError(f"There is no database alias {using!r}.")
    return using


def duration(text: str) -> timedelta:
    """Return the duration of an option such as ``90``, ``5m`` or ``2h``."""
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise ArgumentTypeError(str(error)) from error


def positive(value: str) -> int:
    """Parse an id or a count from 1 on; raises ArgumentTypeError."""
    if not fits(value) or int(value) < 1:
        raise ArgumentTypeError(f"must be a number from 1 to {MOST}")
    return int(value)


def named(text: str) -> int | LogPlace:
    """Parse an id or a place in a log; raises ArgumentTypeError."""
    if text.isdecimal():
        return positive(text)
    try:
        return message_name(text)
    except InvalidPlace as error:
        raise ArgumentTypeError(str(error)) from error


def letters_named(text: str) -> int | LogPlace:
    """Parse an id, or a place, which may be several; raises ArgumentTypeError."""
    return LogPlace.parse(text) if PLACE.fullmatch(text) else named(text)


def from_environment(text: str) -> str:
    """Return the variable that ``env:NAME`` names, or the text; raises CommandError."""
    if not text.startswith(FROM_ENVIRONMENT):
        return text
    name = text.removeprefix(FROM_ENVIRONMENT)
    if name not in os.environ:
        raise CommandError(f"There is no {name} in the environment.")
    return os.environ[name]


def fits(value: str) -> bool:
    """Tell whether the text is a number from 0 on that a column can have."""
    return value.isdecimal() and len(value) <= len(str(MOST)) and int(value) <= MOST


def _add_django(parser: ArgumentParser) -> None:
    """Take Django's own options after a verb, too; their help stands with the command."""
    flags: dict[str, Any] = {"action": "store_true", "default": SUPPRESS, "help": SUPPRESS}
    values: dict[str, Any] = {"default": SUPPRESS, "help": SUPPRESS}
    parser.add_argument("-v", "--verbosity", type=int, choices=range(4), **values)
    parser.add_argument("--settings", **values)
    parser.add_argument("--pythonpath", **values)
    parser.add_argument("--traceback", **flags)
    parser.add_argument("--no-color", **flags)
    parser.add_argument("--force-color", **flags)


def _check_text(given: Iterable[Any]) -> None:
    """Refuse arguments that are not UTF-8, which no database accepts; raises CommandError."""
    for value in given:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and storable(text) != text:
                raise CommandError(f"This is not UTF-8: {storable(text)}")


def sorted_by(index: int, rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the rows in the order of one column, which ``show`` describes."""
    known: list[Sequence[Any]] = []
    unknown: list[Sequence[Any]] = []
    for row in rows:
        (unknown if row[index] is None else known).append(row)
    is_text = any(isinstance(row[index], str) for row in known)
    known.sort(key=lambda row: row[index], reverse=not is_text)
    return [*known, *unknown]


def head(name: str) -> str:
    """Return what a table calls a column: a duration is printed with its unit."""
    return name.removesuffix("_seconds")


def cell(name: str, value: Any) -> str:
    """Return the value of a column or field as a text; what names a row has no separators."""
    return str(value) if name in NAMING and value is not None else line(value)


def number(value: int) -> str:
    """Return the number with thousands separators."""
    return str(number_format(value, use_l10n=True, force_grouping=True))


def counted(contents: Mapping[str, int]) -> str:
    """Return {plural name of a model: rows} as a text: 1 cursor, 2,000 deliveries."""
    singular = {
        str(model._meta.verbose_name_plural): str(model._meta.verbose_name) for model in models()
    }
    return ", ".join(
        f"{number(count)} {singular.get(name, name) if count == 1 else name}"
        for name, count in contents.items()
    )


def line(value: Any) -> str:
    """Return a value on one line, as people read it; unknown is a dash, never 0."""
    if value is None or value in ([], {}):
        return UNKNOWN
    if isinstance(value, list):
        return ", ".join(map(line, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(value)
    if value == IMMEDIATE:
        return "at once"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, timedelta):
        return str(timedelta(seconds=int(value.total_seconds())))
    return " ".join(printable(str(value)).split())


def body_shown(row: Message | DeadMessage) -> dict[str, Any]:
    """Return what the noun of a row has about its body.

    That is as JSON can hold it: the value, the text, or bytes in base64.
    """
    raw = row.readable_body()
    if raw is None:
        return {"has_body": True, "damaged": True, "body": None}
    is_bytes = row.body_type == bodies.BYTES
    body = b64encode(raw).decode() if is_bytes else bodies.decode(raw, row.body_type)
    return {"has_body": True, "damaged": False, "body": body}


def body_preview(row: Message | DeadMessage) -> str:
    """Return the beginning of the body for people."""
    raw = row.readable_body()
    if raw is None:
        return "The stored body is damaged."
    return bodies.preview(raw, row.body_type, row.size)


def printable(text: str) -> str:
    """Return the text without control characters, which could control the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
