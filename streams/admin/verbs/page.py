"""Shows the pages of the verbs: what each of them needs, and how one ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from streams.admin.parts import journal


class Refused(Exception):
    """Why nothing was done, for the page; below ``field`` if one of its values is the reason."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def refusal(error: Exception, fields: Mapping[Any, str]) -> dict[str, Any]:
    """Return what the page shows of ``error``; ``fields`` says which one each class belongs to."""
    found = getattr(error, "field", "")
    field = found or next((fields[kind] for kind in type(error).mro() if kind in fields), "")
    return {"errors": {field: str(error)}} if field else {"error": str(error)}


def typed_number(text: str) -> int | None:
    """Return a number as people type it, with or without separators; None if it is none."""
    digits = re.sub(r"[\s.,'\u2019]", "", text)
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None


def page(admin: Any, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
    """Return the page of this name, in the frame of the admin."""
    request.current_app = admin.admin_site.name
    frame = {**admin.admin_site.each_context(request), "opts": admin.opts, "media": admin.media}
    return TemplateResponse(request, f"admin/ems/{name}.html", {**frame, **context})


def done(
    admin: Any, request: HttpRequest, row: Model, outcome: str, flag: int = journal.CHANGE
) -> HttpResponse:
    """Note what came of it, say so, and go back to the list."""
    journal.note(request, [(row, outcome)], flag=flag)
    admin.message_user(request, f"{row}: {outcome}.", messages.SUCCESS)
    return HttpResponseRedirect(request.get_full_path())
