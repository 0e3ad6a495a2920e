"""Defines the page of the API tokens. A token is shown once, when it is made."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import StreamsAdmin, StreamsForm
from streams.admin.parts import journal
from streams.admin.parts.columns import at, column
from streams.admin.parts.figures import UNKNOWN
from streams.admin.verbs.page import page
from streams.conf import database
from streams.models import ApiRight, ApiToken, Verb
from streams.operate.tokens import issue, revoke

# What somebody may do in the admin who gives a token this right: nobody gives more than he has.
PERMISSIONS: dict[str, tuple[str, ...]] = {
    Verb.SEND: ("produce_topic", "cancel_message"),
    Verb.CONSUME: ("change_consumergroup", "reset_consumergroup", "view_body"),
    Verb.READ: ("view_message", "view_topic", "view_consumergroup"),
    Verb.BODY: ("view_body",),
    Verb.DEAD: ("view_deadmessage", "redrive_deadmessage"),
    Verb.DISCARD: ("discard_deadmessage",),
    Verb.MANAGE: (
        *("add_topic", "change_topic", "grow_topic", "retire_topic", "delete_topic"),
        *("change_consumergroup", "pause_consumergroup", "resume_consumergroup"),
        *("retry_consumergroup", "skip_consumergroup", "reset_consumergroup"),
        "give_up_consumergroup",
        *("replay_consumergroup", "forget_consumergroup"),
    ),
    Verb.PREPARE: ("produce_topic", "view_preparedrow", "commit_prepared", "rollback_prepared"),
    Verb.CHECK: ("produce_topic",),
    Verb.LOOK: ("view_topic", "view_consumergroup"),
    Verb.STRESS: ("produce_topic",),
}


def lacks(user: Any, verb: str) -> list[str]:
    """Return the permissions that ``user`` would need to give this right, and has not."""
    needed = PERMISSIONS.get(verb, ())
    return [f"ems.{name}" for name in needed if not user.has_perm(f"ems.{name}")]


class RightForm(StreamsForm):
    class Meta:
        model = ApiRight
        fields = ("verb", "pattern")

    user: Any  # who fills the form in

    def clean(self) -> Any:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.has_changed() and (missing := lacks(self.user, cleaned.get("verb", ""))):
            text = gettext("You cannot give what you have not: %s.") % ", ".join(missing)
            raise ValidationError({"verb": text})
        return cleaned


class Rights(admin.TabularInline):  # type: ignore[type-arg]  # generic only in stubs
    """The rights of a token. Who may change the token may change them."""

    model = ApiRight
    form = RightForm
    extra = 3

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        form = type("FormOfUser", (RightForm,), {"user": request.user})
        return super().get_formset(request, obj, form=form, **kwargs)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return ApiRight.objects.using(database()).order_by("verb", "pattern")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("ems.view_apitoken")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_change(request, obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return (
            request.user.has_perm("ems.add_apitoken") if obj is None else may_change(request, obj)
        )

    has_delete_permission = has_change_permission


def may_change(request: HttpRequest, token: ApiToken | None) -> bool:
    """Tell whether the user may change this token: a valid one whose rights are all his, too."""
    if not request.user.has_perm("ems.change_apitoken"):
        return False
    if token is None or token.pk is None:
        return True
    rights = token.rights.using(database())
    return token.revoked_at is None and not any(lacks(request.user, one.verb) for one in rights)


class TokenForm(StreamsForm):
    class Meta:
        model = ApiToken
        fields = ("name", "expires_at", "max_rate", "max_holds")


@admin.register(ApiToken)
class ApiTokenAdmin(StreamsAdmin):
    per_database = False
    form = TokenForm
    inlines = (Rights,)
    actions = ("revoke",)
    verbs = {"revoke": _("Revoke")}

    @column(_("rights"))
    def rights(row: Any) -> str:  # noqa: N805
        return ", ".join(sorted(map(str, row.rights.all()))) or UNKNOWN

    @column(_("state"))
    def state(row: Any) -> str:  # noqa: N805
        return state_of(row)

    list_display = (
        *("name", "prefix", rights, state, "created_by"),
        at("created_at", _("created at")),
        at("expires_at", _("expires at")),
        at("last_used_at", _("last used at")),
    )
    fields = ("name", "expires_at", "max_rate", "max_holds")
    seen = ("prefix", "created_by", *list_display[5:6], *list_display[7:])

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj is None else (*self.fields, *self.seen)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else self.seen

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("rights")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_change(request, obj)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.revoke_apitoken")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        user: Any = request.user
        obj.created_by, obj.owner = user.get_username(), str(user.pk)
        obj.shown_once = issue(obj, (), database())  # save_formset writes the rights

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        for row in formset.save(commit=False):
            row.save(using=database())
        for row in formset.deleted_objects:
            row.delete(using=database())

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the token, at once and never again: a redirect would have to carry it."""
        context = {"title": gettext("New token"), "row": obj, "token": obj.shown_once}
        return page(self, request, "token_issued", context)

    @admin.action(permissions=["revoke"], description=_("Revoke"))
    def revoke(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Revoke each: in force within five seconds, and not to be undone."""
        user: Any = request.user
        revoked = [row for row in queryset if revoke(row, user.get_username(), database())]
        journal.note(request, [(row, gettext("Revoked")) for row in revoked])
        for row in revoked:
            text = gettext("%s is revoked: it is refused within five seconds.") % row
            self.message_user(request, text, messages.SUCCESS)


def state_of(row: ApiToken) -> str:
    """Return whether a token is valid, in a word."""
    if row.revoked_at is not None:
        return gettext("revoked")
    if row.expires_at is not None and row.expires_at <= timezone.now():
        return gettext("expired")
    return gettext("valid")
