"""Shows the pages that edit a dead letter: the form, the difference, and the letter sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice, pairwise
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from streams.admin.parts import journal
from streams.admin.parts.columns import label, url
from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import page
from streams.conf import database
from streams.errors import InvalidName, StreamsError
from streams.models import BodyType, DeadMessage, LetterEdit
from streams.operate.edited_letter import EditableContent, difference, edit_and_redrive, version

VERB = "edit"
# In bytes: larger bodies are edited with ems_dead edit. A browser cannot edit them well, and Django
# refuses forms of more than 2.5 MB.
EDITED_AT_MOST = 200_000
# In lines of a difference, and in edits of a letter: what a page shows.
LINES_AT_MOST = 400
EDITS_AT_MOST = 10


class DiffLine(NamedTuple):
    """A line of a difference, with what it is for the stylesheet."""

    kind: str
    text: str


class Edit(NamedTuple):
    """What one edit has changed."""

    record: LetterEdit
    lines: list[DiffLine]


def respond(admin: Any, request: HttpRequest, letter: DeadMessage) -> HttpResponse:
    """Return the form, the difference to confirm, or a redirect to the letter."""
    if letter.redriven_at is not None:
        return _back(admin, request, letter, _("It was redriven already: nothing to edit."))
    if letter.size > EDITED_AT_MOST:
        text = _("The body has more than %(most)d bytes: use ems_dead edit %(id)d --body @FILE.")
        return _back(admin, request, letter, text % {"most": EDITED_AT_MOST, "id": letter.pk})
    if letter.readable_body() is None:
        return _back(admin, request, letter, _("The stored body is damaged."))
    if request.method != "POST":
        return _form(admin, request, letter, EditableContent.of(letter))
    if OFFER not in request.POST:
        return _preview(admin, request, letter, _typed(request, letter))
    offered = accepted(request, VERB, letter.pk)
    if offered is None:
        return _back(admin, request, letter, _("This preview is not valid any more: begin again."))
    content, seen = EditableContent(**offered["content"]), offered["version"]
    if "again" in request.POST:
        return _form(admin, request, letter, content)
    if seen != _version(letter) or not edit_and_redrive(letter, content, _who(request)):
        text = _("Nothing was done: it was redriven, edited or deleted meanwhile.")
        return _back(admin, request, letter, text)
    journal.note(request, [(letter, _("Edited and redriven"))])
    admin.message_user(request, f"{label(letter)}: {_('Edited and redriven')}.", messages.SUCCESS)
    return HttpResponseRedirect(url(letter))


def edits(letter: DeadMessage) -> list[Edit]:
    """Return the newest edits of a letter, the newest first, each with its difference."""
    rows = LetterEdit.objects.using(database()).filter(letter=letter.pk).order_by("-pk")
    newest = list(rows.filter(size__lte=EDITED_AT_MOST)[:EDITS_AT_MOST])
    shown = letter.size <= EDITED_AT_MOST
    versions: list[DeadMessage | LetterEdit] = [letter, *newest] if shown else [*newest]
    versions = [one for one in versions if one.readable_body() is not None]
    return [
        Edit(before, _lines(difference(EditableContent.of(before), EditableContent.of(after))))
        for after, before in pairwise(versions)
        if isinstance(before, LetterEdit)
    ]


def _preview(
    admin: Any, request: HttpRequest, letter: DeadMessage, content: EditableContent
) -> HttpResponse:
    try:
        after = EditableContent.of(content.checked(letter))
    except StreamsError as error:
        return _form(admin, request, letter, content, error=str(error), field=field_of(error))
    changes = _lines(difference(EditableContent.of(letter), after))
    if not changes:
        text = _("Nothing is changed. To hand it over as it is, redrive it.")
        return _form(admin, request, letter, content, error=text)
    what = {"content": asdict(content), "version": _version(letter)}
    context = {
        "title": _("Send the edited message"),
        "letter": letter,
        "lines": changes,
        OFFER: offer(request, VERB, letter.pk, what),
    }
    return page(admin, request, "letter_edit_preview", context)


def _form(
    admin: Any,
    request: HttpRequest,
    letter: DeadMessage,
    content: EditableContent,
    error: str = "",
    field: str = "",
) -> HttpResponse:
    context = {
        "title": _("Edit and send again"),
        "letter": letter,
        "content": content,
        "types": BodyType.choices,
        "rows": min(30, max(6, content.body.count("\n") + 2)),
        "errors": {field: error} if field else {},
        "error": "" if field else error,
    }
    return page(admin, request, "letter_edit", context)


def _typed(request: HttpRequest, letter: DeadMessage) -> EditableContent:
    names = ("body", "body_type", "key", "tag", "headers")
    given = {name: request.POST.get(name, "") for name in names}
    if given["body_type"] not in BodyType.values:
        given["body_type"] = letter.body_type
    if b"\r\n" not in bytes(letter.body):
        # Browsers send the ends of lines like this, whatever they were.
        given["body"] = given["body"].replace("\r\n", "\n")
    return EditableContent(**given)


def field_of(error: StreamsError) -> str:
    """Return the field that the error stands at: its text names a header, key or tag."""
    text = str(error).lower()
    for name in ("headers", "key", "tag"):
        if text.startswith(name) or (isinstance(error, InvalidName) and name in text):
            return name
    return "body"


def _lines(lines: Iterable[str]) -> list[DiffLine]:
    shown = [
        DiffLine(_kind(line), line) for line in islice(_without_heading(lines), LINES_AT_MOST + 1)
    ]
    if len(shown) > LINES_AT_MOST:
        shown[-1] = DiffLine("", _("… and more"))
    return shown


def _without_heading(lines: Iterable[str]) -> Iterator[str]:
    return islice(lines, 2, None)  # --- before, +++ after


def _kind(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "")


def _version(letter: DeadMessage) -> list[str | None]:
    return [None if at is None else at.isoformat() for at in version(letter)]


def _who(request: HttpRequest) -> str:
    user: Any = request.user
    return str(user.get_username())


def _back(admin: Any, request: HttpRequest, letter: DeadMessage, text: str) -> HttpResponse:
    admin.message_user(request, text, messages.WARNING)
    return HttpResponseRedirect(url(letter))
