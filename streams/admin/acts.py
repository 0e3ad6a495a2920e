"""Shows the pages of acts: their arguments, what would be done, signed, and do exactly that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext as _

from streams.admin.parts import journal
from streams.admin.verbs.offer import OFFER, accepted, offer
from streams.admin.verbs.page import Refused, done, page, refusal, typed_number
from streams.conf import database
from streams.errors import StreamsError
from streams.operate.acts import ACTS
from streams.operate.acts.act import Act, Argument, Consent, Effects, Table, arguments
from streams.operate.acts.unblock import Unblocking

AnyAct = type[Act[Any, Any]]

FIELDS: Mapping[type, type[forms.Field]] = {
    int: forms.IntegerField,
    str: forms.CharField,
    bool: forms.BooleanField,
}
# In rows: those of one preview.
AT_MOST = 50
# How a preview looks that is more than a table.
PANELS: Mapping[type[Effects], str] = {Unblocking: "admin/ems/includes/blocked.html"}


def actions(model: type[Model], user: Any) -> dict[str, tuple[Callable[..., Any], str, Any]]:
    """Return the acts that the user may carry out, as the admin wants the actions of a list."""
    return {
        act.name: (_action(act), act.name, _button(act))
        for act in ACTS.get(model, ())
        if user.has_perm(act.permission)
    }


def buttons(model: type[Model], row: Any) -> dict[str, Any]:
    """Return the text of the button of each act that makes sense for the row as it is."""
    return {
        act.name: _button(act) for act in ACTS.get(model, ()) if act.is_offered(row, database())
    }


def _button(act: AnyAct) -> Any:
    return format_lazy("{} …", act.label) if act.previewed else act.label


def _action(act: AnyAct) -> Callable[..., Any]:
    def respond(admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        if not act.previewed:
            _each(act, admin, request, queryset)
            return None
        chosen = list(queryset.order_by("pk")[: AT_MOST + 1])
        if len(chosen) == 1:
            return _one(act, admin, request, chosen[0])
        several = [row for row in chosen if act.is_one_of_many(row)]
        if not several or len(chosen) > AT_MOST:
            text = _("That is done with one at a time: choose one.")
            if several:
                text = _("That is done with at most %d at a time: choose fewer.") % AT_MOST
            admin.message_user(request, text, messages.WARNING)
            return None
        return _several(act, admin, request, several)

    return respond


def _each(act: AnyAct, admin: Any, request: HttpRequest, rows: Iterable[Any]) -> None:
    """Carry out an act without a preview on each row; it is noted where it changes something."""
    consent = Consent(request.user.get_username())
    chosen = list(rows)
    told = [(row, act().carry_out(row, database(), consent).texts()) for row in chosen]
    changed = [(row, "; ".join(texts)) for row, texts in told if texts]
    journal.note(request, changed)
    named = admin.opts.verbose_name if len(changed) == 1 else admin.opts.verbose_name_plural
    text = f"{act.label}: {len(changed)} {named}."
    if unchanged := len(chosen) - len(changed):
        text += " " + _("It was already so for %d.") % unchanged
    admin.message_user(request, text, messages.SUCCESS if changed else messages.WARNING)


def _one(act: AnyAct, admin: Any, request: HttpRequest, row: Any) -> HttpResponse:
    """Return the page that asks for the arguments, the preview, or a redirect when it is done."""
    asked = arguments(act)
    given = {one.name for one in asked} & set(request.POST)
    has_all = given or not (act.has_form or any(one.is_required for one in asked))
    form = _form(asked)(request.POST if given else None)
    try:
        if OFFER in request.POST:
            return _carry_out(act, admin, request, row)
        if has_all and (form.is_valid() or not given):
            cleaned = form.cleaned_data if given else {}
            values = {name: value for name, value in cleaned.items() if value not in ("", None)}
            return _preview(act, admin, request, row, values)
        errors = {name: " ".join(map(str, found)) for name, found in form.errors.items()}
        told: dict[str, Any] = {"errors": errors}
    except (Refused, StreamsError) as error:
        told = refusal(error, act.at_fault)
    fields = _fields(asked, request, told.get("errors", {}))
    return _page(act, admin, request, row, fields=fields, **told)


@dataclass(frozen=True)
class _Several(Effects):
    """What an act does with several rows."""

    each: Sequence[tuple[Model, Effects]]

    def texts(self) -> list[str]:
        return [f"{row}: {'; '.join(found.texts())}" for row, found in self.each]

    def table(self) -> Table | None:
        tables = [table for _row, found in self.each if (table := found.table())]
        rows = [row for one in tables for row in one.rows]
        return Table(tables[0].columns, rows) if tables else None

    @property
    def shown(self) -> list[Any]:
        return [[row.pk, found.shown] for row, found in self.each]

    @property
    def typed(self) -> str:
        return str(len(self.each))

    @property
    def asks(self) -> str:
        return _("To go on, type how many there are.")


def _several(
    act: AnyAct, admin: Any, request: HttpRequest, rows: Sequence[Model]
) -> HttpResponse | None:
    """Ask about several rows on one page; each of them succeeds or fails by itself."""
    found = _Several([(row, act().preview(row, database())) for row in rows])
    errors = {}
    if accepted(request, act.name, request.path) == found.shown:
        if request.POST.get("typed") == found.typed:
            _carry_out_each(act, admin, request, found)
            return None
        errors = {"typed": _("That is not the number. Nothing was done.")}
    signed = offer(request, act.name, request.path, found.shown)
    return _page(act, admin, request, *rows, found=found, errors=errors, **{OFFER: signed})


def _carry_out_each(act: AnyAct, admin: Any, request: HttpRequest, all_: _Several) -> None:
    for row, found in all_.each:
        consent = Consent(request.user.get_username(), found.shown)
        try:
            done = act().carry_out(row, database(), consent)
            outcome, level = "; ".join(done.texts()), messages.SUCCESS
        except StreamsError as error:
            outcome, level = str(error), messages.ERROR
        journal.note(request, [(row, f"{act.label}: {outcome}")])
        admin.message_user(request, f"{row}: {outcome}.", level)


def _carry_out(act: AnyAct, admin: Any, request: HttpRequest, row: Any) -> HttpResponse:
    what = accepted(request, act.name, row.pk)
    if what is None:
        raise Refused(_("This preview is not valid any more: begin again."))
    values, shown, typed = what
    given = request.POST.get("typed", "").strip()
    if typed and typed not in (given, str(typed_number(given))):
        error = (
            _("That is not the number. Nothing was done.")
            if typed.isdecimal()
            else (_("That is not its name. Nothing was done."))
        )
        return _preview(act, admin, request, row, values, errors={"typed": error})
    consent = Consent(request.user.get_username(), shown, "force" in request.POST)
    found = act.of(values).carry_out(row, database(), consent)
    flag = journal.DELETION if act.deletes else journal.CHANGE
    return done(admin, request, row, f"{act.label}: {'; '.join(found.texts())}", flag)


def _preview(
    act: AnyAct, admin: Any, request: HttpRequest, row: Any, values: dict[str, Any], **more: Any
) -> HttpResponse:
    found = act.of(values).preview(row, database())
    if why := found.too_long or ("" if found.texts() else _("There is nothing to do.")):
        raise Refused(why)
    signed = offer(request, act.name, row.pk, [values, found.shown, found.typed])
    return _page(act, admin, request, row, found=found, **{OFFER: signed}, **more)


def _page(act: AnyAct, admin: Any, request: HttpRequest, *rows: Any, **more: Any) -> HttpResponse:
    found: Effects | None = more.get("found")
    shown = found.table() if found else act.situation(rows[0], database())
    table = shown or Table((), ())
    context = {
        "title": act.label,
        "subtitle": rows[0] if len(rows) == 1 else None,
        # Not the class itself, which a template would call.
        "act": {"name": act.name, "label": act.label, "text": act.text, "destroys": act.destroys},
        "obstacle": found.obstacle if found and act.forcible else "",
        "pk": rows[0].pk,
        "pks": [row.pk for row in rows],
        "panel": PANELS.get(type(found)) if found else None,
        "blockade": getattr(found, "blockade", None),
        "columns": table.columns,
        "rows": [list(zip(table.columns, cells, strict=True)) for cells in table.rows],
        **more,
    }
    return page(admin, request, "act", context)


def _form(asked: Iterable[Argument]) -> type[forms.Form]:
    fields = {
        one.name: FIELDS[one.kind](required=one.is_required, initial=one.default) for one in asked
    }
    return type("ArgumentsForm", (forms.Form,), fields)


def _fields(
    asked: Iterable[Argument], request: HttpRequest, errors: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "label": capfirst(one.help),
            "value": request.POST.get(one.name, ""),
            "digits": one.kind is int,
            "required": one.is_required,
            "error": errors.get(one.name),
        }
        for one in asked
    ]
