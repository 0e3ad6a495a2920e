"""Shows bodies in the admin: cut, escaped, and only to users who may see them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import BinaryField, QuerySet
from django.db.models.functions import Substr
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from streams import body as bodies
from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import url
from streams.errors import DamagedBody
from streams.models import DeadMessage, Message, PreparedRow
from streams.rules.stored_body import beginning, bytes_to_cut

SHOWN_BYTES = 4000
ENDINGS = {bodies.JSON: "json", bodies.TEXT: "txt", bodies.BYTES: "bin"}


class BodyAdmin(ReadOnly, LargeAdmin):
    """The admin of rows that have a body. Lists never fetch it, and a page only its beginning."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("body", "headers")

    def has_body_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.view_body")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.body_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_body"
        return [path("<path:object_id>/body/", view, name=name), *super().get_urls()]

    @method_decorator(require_safe)
    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return the body as a file, so that the browser does not show it, and run code in it."""
        if not (self.has_view_permission(request) and self.has_body_permission(request)):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        raw = row.readable_body()
        if raw is None:
            self.message_user(request, _("The stored body is damaged."), messages.ERROR)
            return HttpResponseRedirect(url(row))
        return HttpResponse(
            raw,
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Disposition": str(content_disposition_header(True, filename(row))),
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "sandbox",
                "Cache-Control": "no-store",
            },
        )

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = kwargs["obj"]
        context["may_view_body"] = self.has_body_permission(request)
        if context["may_view_body"]:
            try:
                context["body"] = self._beginning(row)
            except DamagedBody:
                context["body_damaged"] = True
            context["body_cut"] = SHOWN_BYTES if row.size > SHOWN_BYTES else None
            name = f"admin:{self.opts.app_label}_{self.opts.model_name}_body"
            context["body_url"] = reverse(name, args=[row.pk])
        return super().render_change_form(request, context, *args, **kwargs)

    def _beginning(self, row: Message | DeadMessage | PreparedRow) -> str:
        # The database cuts the body, which may have megabytes.
        start = Substr("body", 1, bytes_to_cut(SHOWN_BYTES), output_field=BinaryField())
        rows = self.model._default_manager.using(row._state.db).filter(pk=row.pk)
        cut, stored_type = rows.values_list(start, "body_type").get()
        if not cut:
            return ""  # that of a prepared message is sent
        raw = beginning(cut, stored_type, SHOWN_BYTES)
        text = bodies.preview(raw, row.body_type, row.size, SHOWN_BYTES)
        return _indented(text) if row.body_type == bodies.JSON else text


def _indented(text: str) -> str:
    """Return JSON with line breaks, if it is whole and does not become too long."""
    with contextlib.suppress(ValueError, RecursionError):
        indented = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        if len(indented) <= 4 * SHOWN_BYTES:
            return indented
    return text


def filename(row: Message | DeadMessage | PreparedRow) -> str:
    if isinstance(row, PreparedRow):
        return f"{row.topic}-prepared{row.pk}.{ENDINGS[row.body_type]}"
    offset = f"id{row.pk}" if row.offset is None else row.offset
    try:
        partition = f"{row.partition.topic.name}-{row.partition.number}"
    except ObjectDoesNotExist:  # deleted with its topic
        partition = f"partition{row.partition_id}"
    return f"{partition}-{offset}.{ENDINGS[row.body_type]}"
