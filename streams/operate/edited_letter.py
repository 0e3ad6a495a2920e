"""Edits a dead letter and gives it to its group again; the log stays as it is."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from typing import Any

from django.utils.translation import gettext as _

from streams import body as bodies
from streams.conf import database
from streams.consume.outcome.dead_letter import hand_over, is_redrivable
from streams.consume.typed import check_body
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import InvalidMessage
from streams.logs import event
from streams.models import DeadMessage, LetterEdit, UtcNow
from streams.models.letter_edit import MAX_WHO
from streams.models.with_body import stored
from streams.produce.outgoing import Row, checked_row

logger = logging.getLogger("streams.operate")

# In characters: how much of a line with an error is shown around the error.
AROUND = 30


@dataclass(frozen=True)
class EditableContent:
    """What can be edited, as people type it: JSON and text as it is, bytes in base64."""

    body: str
    body_type: str
    key: str
    tag: str
    headers: str  # a JSON object, or nothing

    @classmethod
    def of(cls, row: DeadMessage | LetterEdit | Row) -> EditableContent:
        kept = json.loads(row.headers) if isinstance(row.headers, str) else row.headers
        headers = "" if kept is None else _indented(kept)
        body = text_of_body(bytes(row.body), row.body_type)
        return cls(body, row.body_type, row.key or "", row.tag, headers)

    def values(self) -> tuple[Any, dict[str, str] | None]:
        """Return the body and the headers as send() takes them; raises InvalidMessage."""
        headers = parse_json(self.headers, _("headers")) if self.headers.strip() else None
        if not isinstance(headers, dict | None):
            raise InvalidMessage(_("headers must map strings to strings."))
        return parse_body(self.body, self.body_type), headers

    def checked(self, letter: DeadMessage) -> Row:
        """Return what would be stored; raises InvalidMessage or InvalidName."""
        using = letter._state.db or database()
        value, headers = self.values()
        # A tag of a time with other rules may stay.
        tag = "" if self.tag == letter.tag else self.tag
        key = self.key or None
        topic = letter.group.topic.name
        row = checked_row(using, topic, value, key, tag, headers)
        check_body(topic, letter.group.name, row.body, row.body_type)
        return row._replace(tag=self.tag)


def parse_body(text: str, body_type: str) -> Any:
    """Return the value of a body that somebody has typed; raises InvalidMessage."""
    if body_type == bodies.TEXT:
        return text
    if body_type == bodies.BYTES:
        try:
            return b64decode("".join(text.split()), validate=True)
        except ValueError as error:
            raise InvalidMessage(_("The body is not base64: %s") % error) from error
    return parse_json(text, _("body"))


def parse_json(text: str, what: str) -> Any:
    """Return the value of the JSON text; raises InvalidMessage, with the place of the error."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        start = max(0, error.colno - 1 - AROUND)
        values = {"what": what, "line": error.lineno, "column": error.colno, "why": error.msg}
        where = _("%(what)s: line %(line)d, column %(column)d: %(why)s") % values
        shown = line[start : error.colno - 1] + "⟨" + _("here") + "⟩" + line[error.colno - 1 :]
        raise InvalidMessage(f"{where}: {shown[: 2 * AROUND + 10]}") from error
    except (ValueError, RecursionError) as error:  # too many digits, or brackets
        raise InvalidMessage(f"{what}: {error}") from error


def text_of_body(raw: bytes, body_type: str) -> str:
    """Return the body as people edit it."""
    if body_type == bodies.BYTES:
        return b64encode(raw).decode()
    value = bodies.decode(raw, body_type)
    return value if body_type == bodies.TEXT else _indented(value)


def difference(before: EditableContent, after: EditableContent) -> Iterator[str]:
    """Yield the lines that differ, with what is around them, as ``diff -u`` does."""
    old, new = _lines(before), _lines(after)
    yield from unified_diff(old, new, _("before"), _("after"), lineterm="", n=2)


def edit_and_redrive(letter: DeadMessage, content: EditableContent, who: str) -> bool:
    """Replace the letter's copy of the message and give it to its group, from the first attempt.

    Only this group sees it, at the offset of the message. The log and other groups are not
    changed, also if the message is still there. What the letter was before is kept with ``who``.

    Returns False if the letter was redriven, edited or deleted since ``letter`` was read, or while
    another edited letter of the same message is a retry. Raises InvalidMessage or InvalidName
    before anything is written.
    """
    using = letter._state.db or database()
    row = content.checked(letter)
    edit = LetterEdit(letter_id=letter.pk, group_id=letter.group_id, who=who[:MAX_WHO])
    if not retrying(_write, using, letter, row, edit, using):
        return False
    logger.info(
        "Dead letter %d of %s was edited by %s and redriven",
        *(letter.pk, letter.group, who),
        extra=event(
            "letter.edited",
            topic=letter.group.topic.name,
            group=letter.group.name,
            letter=letter.pk,
            offset=letter.offset,
            who=who,
        ),
    )
    return True


def version(letter: DeadMessage) -> tuple[datetime, datetime | None]:
    """Return what is another one after each edit, and after each time that the letter has died."""
    return letter.died_at, letter.edited_at


def _write(letter: DeadMessage, row: Row, edit: LetterEdit, using: str) -> bool:
    letters = DeadMessage.objects.using(using)
    with own_transaction(using):
        edits = LetterEdit.objects.using(using).filter(letter=letter.pk)
        if edit.pk and edits.filter(pk=edit.pk).exists():
            return True  # it was committed before, and the reply was lost
        if not is_redrivable(letter, using):
            return False
        now = letters.get(pk=letter.pk)
        if version(now) != version(letter):
            return False
        for name in ("body", "body_type", "size", "key", "tag", "headers"):
            setattr(edit, name, getattr(now, name))
        edit.pk = None
        edit.compress().save(using=using, force_insert=True)
        letters.filter(pk=now.pk).update(
            **stored(row.body, row.body_type),
            size=len(row.body),
            key=row.key,
            tag=row.tag,
            headers=None if row.headers is None else json.loads(row.headers),
            edited_at=UtcNow(),
            redriven_at=UtcNow(),
        )
        hand_over(now, using)
    return True


def _lines(content: EditableContent) -> list[str]:
    about = [f"{_('key')}: {content.key}", f"{_('tag')}: {content.tag}"]
    headers = [f"{_('headers')}: {line}" for line in content.headers.splitlines()]
    return [*about, *headers, f"{_('body')}: {content.body_type}", *content.body.splitlines()]


def _indented(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
