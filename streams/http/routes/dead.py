"""Lists, redrives and discards dead letters."""

from __future__ import annotations

from typing import Self

from django.http import HttpResponse
from ninja import Router, Status
from pydantic import Field, model_validator

from streams.conf import database
from streams.consume.outcome.dead_letter import redrive
from streams.errors import RedriveRunning
from streams.http.access import ApiRequest, Caller, needs
from streams.http.cursors import cursor, position
from streams.http.databases import ABOUT, Database, alias_of_id
from streams.http.fields import (
    MOST,
    Answer,
    Id,
    Limit,
    Page,
    Request,
    body_out,
    with_body,
)
from streams.http.found import group_named
from streams.http.journal import note, who
from streams.http.letters import of_ids, place, waiting
from streams.http.offers import accepted, offer
from streams.http.problems import Problem, problem_of
from streams.http.threads import on_pool
from streams.models import ConsumerGroup, DeadMessage, Verb
from streams.nouns.at_place import with_names
from streams.nouns.letter import LetterHead, LetterShown
from streams.operate.redrives import begin
from streams.sharding import alias_of

router = Router(tags=["Dead letters"])

DEAD, DISCARD = str(Verb.DEAD), str(Verb.DISCARD)
# What the preview of a discard is about.
LETTERS = "letters of a database"
# Letters of one request.
AT_ONCE = 1000


class Chosen(Request):
    """Letters that wait: ``ids``, or those of a group, with ids above ``after``."""

    ids: list[Id] | None = Field(None, max_length=AT_ONCE)
    topic: str | None = None
    group: str | None = None
    error_class: str | None = None
    after: Id = 0
    upto: Id | None = None
    limit: int = Field(AT_ONCE, ge=1, le=AT_ONCE)
    dry_run: bool = False
    database: str | None = Field(None, description=ABOUT)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Raise ValueError unless it names letters in one way."""
        if (self.topic is None) != (self.group is None) or (
            (self.ids is None) == (self.topic is None)
        ):
            raise ValueError("give ids, or topic and group")


class ToRedrive(Chosen):
    """Letters to redrive: at once, or at most ``rate`` a second, all that match."""

    rate: float | None = None


class ToDiscard(Chosen):
    """Letters to delete for good: first with ``dry_run``, then with its ``token``."""

    token: str | None = None

    def check(self) -> None:
        if self.token is None and self.dry_run:
            super().check()
        elif self.model_fields_set != {"token"} or self.token is None:
            raise ValueError("ask with dry_run: true, and then give the token of the answer alone")


class Outcome(Answer):
    """How many letters were found, and what became of them.

    ``left_out`` were redriven or deleted meanwhile. ``after`` is null, or the id from which the
    next request goes on. ``redrive`` is the number of the redrive at a rate.
    """

    found: int
    done: int
    left_out: int
    after: int | None
    upto: int
    redrive: int | None = None


class Discarded(Outcome):
    """The same of a discard; with ``dry_run`` its ``token`` discards exactly what was found."""

    token: str | None = None


@router.get("/topics/{topic}/groups/{group}/dead", response=Page[LetterHead])
@needs("dead", "{topic}/{group}")
@on_pool
def list_letters(
    request: ApiRequest,
    topic: str,
    group: str,
    error_class: str | None = None,
    after: str | None = None,
    limit: Limit = 100,
) -> Page[LetterHead]:
    """List the dead letters of a group that nobody has redriven, the oldest first.

    With `error_class` a page may have fewer than `limit`; the last one has no `next`.
    """
    using = database()
    row = group_named(topic, group, using)
    start = position(after, int) or [0]
    ids, then = waiting(row, using, error_class=error_class, after=start[0], upto=MOST, limit=limit)
    letters = DeadMessage.objects.using(using).filter(pk__in=ids).order_by("pk")
    found = with_names(letters.defer("body", "traceback", "headers"), using)
    items = [LetterHead.of(one) for one in found]
    return Page(items=items, next=None if then is None else cursor(then))


@router.get("/dead/{int:letter_id}", response=LetterShown)
@needs("dead")
@on_pool
def show_letter(request: ApiRequest, letter_id: Id, on: Database = None) -> HttpResponse:
    """Show a dead letter. Its body is there if the token has the right `body` on its topic."""
    using = alias_of_id(on)
    letters = DeadMessage.objects.using(using).select_related("group__topic")
    row = letters.filter(pk=letter_id).first()
    groups = ConsumerGroup.objects.using(using)  # of this namespace
    mine = row is not None and groups.filter(pk=row.group_id).exists()
    if row is None or not mine or not request.auth.may(DEAD, place(row.group)):
        raise Problem(404, "unknown", f"There is no dead letter {letter_id}.")
    may = request.auth.may("body", row.group.topic.name)
    with_names([row], using)
    raw = row.readable_body() if may else None
    shown = LetterShown.of(row, has_body=may, damaged=may and raw is None, body=None)
    return with_body(shown, "null" if raw is None else body_out(raw, row.body_type))


@router.post("/dead/redrive", response={200: Outcome, 202: Outcome})
@needs("dead")
@on_pool
def redrive_letters(request: ApiRequest, wanted: ToRedrive) -> Status[Outcome]:
    """Give messages to their groups again, from the first attempt.

    With `rate` 202: consumers or beat carry it out, for all that match, whatever `limit` says. 409:
    a redrive of the same group and class of error runs; `redrive` is its number.
    """
    using = _place(wanted)
    found, outcome, group = _found(request.auth, DEAD, wanted, using)
    if wanted.dry_run or (not found and outcome.after is None):
        return Status(200, outcome)
    if wanted.rate is not None:
        groups = {one.group_id: one.group for one in found}
        try:
            row = begin(
                [group] if group else groups.values(),
                using,
                rate=wanted.rate,
                who=who(request.auth),
                error_class=wanted.error_class or "",
                ids=None if group else [one.pk for one in found],
                after=wanted.after,
                upto=outcome.upto,
            )
        except RedriveRunning as error:  # the answer to the first request may have been lost
            problem = problem_of(error)
            problem.more = {"redrive": error.number}
            raise problem from error
        note(request.auth, row, f"redriven at {row.per_second} a second")
        return Status(202, outcome.model_copy(update={"redrive": row.pk}))
    done = sum(redrive(letter) for letter in found)
    if found:
        note(request.auth, DeadMessage, f"{done} redriven", name=_named(wanted, found))
    changes = {"done": done, "left_out": outcome.left_out + len(found) - done}
    return Status(200, outcome.model_copy(update=changes))


@router.post("/dead/discard", response=Discarded)
@needs("dead!")
@on_pool
def discard_letters(request: ApiRequest, wanted: ToDiscard) -> Discarded:
    """Delete messages for good: a first request with `dry_run`, a second one with its `token`.

    409: some of those that were shown do not wait any more; nothing is deleted.
    """
    if wanted.token is None:
        using = _place(wanted)
        found, outcome, _group = _found(request.auth, DISCARD, wanted, using)
        token = offer(request.auth, DISCARD, LETTERS, [using, [letter.pk for letter in found]])
        return Discarded(**outcome.model_dump(), token=token)
    using, ids = accepted(request.auth, DISCARD, LETTERS, wanted.token)
    found = of_ids(ids, request.auth, DISCARD, using)
    if len(found) != len(ids):
        raise Problem(
            409,
            "count_mismatch",
            f"{len(found)} of the {len(ids)} dead letters wait. Nothing was discarded.",
            count=len(found),
        )
    done = sum(letter.discard() for letter in found)
    if found:
        note(request.auth, DeadMessage, f"{done} discarded", name=_numbers(found))
    last = ids[-1] if ids else 0
    return Discarded(found=len(found), done=done, left_out=len(found) - done, after=None, upto=last)


def _place(wanted: Chosen) -> str:
    """Return the alias of the letters that are named; raises Problem."""
    return alias_of_id(wanted.database) if wanted.topic is None else alias_of(wanted.topic)


def _found(
    caller: Caller, verb: str, wanted: Chosen, using: str
) -> tuple[list[DeadMessage], Outcome, ConsumerGroup | None]:
    """Return the letters, what there is to say of them, and their group if one was named."""
    newest = DeadMessage.objects.using(using).newest_id()
    upto = newest if wanted.upto is None else wanted.upto
    if wanted.ids is not None:
        ids = sorted({pk for pk in wanted.ids if wanted.after < pk <= upto})
        letters = of_ids(ids, caller, verb, using, wanted.error_class)
        left_out = len(set(wanted.ids)) - len(letters)
        return letters, _outcome(letters, left_out, None, upto), None
    caller.needs(verb, f"{wanted.topic}/{wanted.group}")
    group = group_named(wanted.topic or "", wanted.group or "", using)
    chosen, then = waiting(
        group,
        using,
        error_class=wanted.error_class,
        after=wanted.after,
        upto=upto,
        limit=wanted.limit,
    )
    letters = of_ids(chosen, caller, verb, using)
    return letters, _outcome(letters, 0, then, upto), group


def _outcome(letters: list[DeadMessage], left_out: int, after: int | None, upto: int) -> Outcome:
    return Outcome(found=len(letters), done=0, left_out=left_out, after=after, upto=upto)


def _named(wanted: Chosen, found: list[DeadMessage]) -> str:
    if wanted.ids is not None:
        return _numbers(found)
    return " ".join(filter(None, [wanted.topic, wanted.group, wanted.error_class]))


def _numbers(found: list[DeadMessage]) -> str:
    return ", ".join(str(one.pk) for one in found[:20])
