"""Shows the pages of the verbs: what each of them needs, and how one ends."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from streams.admin.parts import journal


class Refused(Exception):
    """Says on the page why nothing was done."""


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
