"""Carries out acts: a preview first, and then exactly what it has shown, once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from django.db.models import Model
from django.utils.translation import override
from ninja import Router
from pydantic import BaseModel, ValidationError, create_model, model_validator

from streams.conf import database
from streams.http.access import ApiRequest, Caller, needs
from streams.http.fields import Answer, Instant, Request
from streams.http.found import group_named
from streams.http.journal import note, who
from streams.http.offers import accepted, offer
from streams.http.problems import Problem
from streams.http.routes.held_keys import held_key_numbered
from streams.http.routes.redrives import redrive_numbered
from streams.http.threads import on_pool
from streams.models import ConsumerGroup, HeldKey, Redrive, Topic
from streams.operate.acts import ACTS
from streams.operate.acts.act import Act, Consent, arguments, data_type
from streams.operate.topics import topic_of

router = Router()


@dataclass(frozen=True)
class Place:
    """Where the rows of a model are in the API, and the right that their acts need.

    ``find`` takes who calls, and what the request names.
    """

    path: str
    right: tuple[str, ...]
    find: Callable[..., Model]
    noun: str
    tag: str

    @property
    def parameters(self) -> list[inspect.Parameter]:
        hints = get_type_hints(self.find, include_extras=True)
        _caller, *named = inspect.signature(self.find).parameters.values()
        return [one.replace(annotation=hints[one.name]) for one in named]


def _topic(caller: Caller, topic: str) -> Topic:
    return topic_of(topic, database())


def _group(caller: Caller, topic: str, group: str) -> ConsumerGroup:
    return group_named(topic, group, database())


PLACES: dict[type[Model], Place] = {
    Topic: Place("/topics/{topic}", ("manage", "{topic}"), _topic, "topic", "Topics"),
    ConsumerGroup: Place(
        "/topics/{topic}/groups/{group}", ("manage", "{topic}"), _group, "group", "Groups"
    ),
    HeldKey: Place(
        "/topics/{topic}/groups/{group}/keys/{int:number}",
        ("manage", "{topic}"),
        held_key_numbered,
        "held_key",
        "Groups",
    ),
    Redrive: Place(
        "/dead/redrives/{int:number}", ("dead",), redrive_numbered, "redrive", "Dead letters"
    ),
}


def _add(act: type[Act[Any, Any]], place: Place) -> None:
    wanted: Any = _request(act)
    told: Any = _answer(act)

    def view(request: ApiRequest, /, **given: Any) -> Any:
        asked = given.pop("wanted") or wanted()
        row = place.find(request.auth, **given)
        using = row._state.db or database()
        about = f"{using}:{row.pk}"
        values, shown = asked.model_dump(include=names, exclude_none=True), None
        if act.previewed and asked.token is None:
            found = act.of(values).preview(row, using)
            if found.too_long:
                raise Problem(409, "too_long", found.too_long)
            token = offer(request.auth, act.name, about, [values, found.shown])
            return told(
                **asdict(found.data()), done=False, obstacle=found.obstacle or None, token=token
            )
        if act.previewed:
            values, shown = accepted(request.auth, act.name, about, asked.token)
        consent = Consent(who(request.auth), shown, act.forcible and asked.force)
        done = act.of(values).carry_out(row, using, consent)
        if texts := done.texts():
            note(request.auth, row, f"{act.name}: {'; '.join(texts)}")
        return told(**asdict(done.data()), done=True, obstacle=None, token=None)

    names = {one.name for one in arguments(act)}
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    body = inspect.Parameter("wanted", either, annotation=wanted)
    if not _needs_more(wanted):  # then it may be left out
        body = body.replace(annotation=wanted | None, default=None)
    view.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("request", either, annotation=ApiRequest),
            *place.parameters,
            body,
        ]
    )
    view.__name__ = f"{act.name}_{place.noun}".replace("-", "_")
    view.__doc__ = _described(act)
    guarded = needs(*place.right)(on_pool(view))
    router.post(f"{place.path}/{act.name}", response=told, tags=[place.tag])(guarded)


def _needs_more(wanted: type[BaseModel]) -> bool:
    """Tell whether a request without any field is refused."""
    try:
        wanted()
    except ValidationError:
        return True
    return False


def _described(act: type[Act[Any, Any]]) -> str:
    with override(None):
        text = str(act.text)
    if not act.previewed:
        return text
    return (
        f"{text}\n\nA first request previews; a second one with its `token` does exactly that,"
        " once. 409: it is not so any more, or the token is too old."
    )


def _request(act: type[Act[Any, Any]]) -> type[Request]:
    asked = arguments(act)
    required = [one.name for one in asked if one.is_required]
    found: dict[str, Any] = {one.name: (one.kind | None, one.default) for one in asked}
    if act.previewed:
        found["token"] = (str | None, None)
    if act.forcible:
        found["force"] = (bool, False)

    def is_whole(self: Any) -> Any:
        missing = [name for name in required if getattr(self, name) is None]
        if missing and self.token is None:
            raise ValueError(f"give {', '.join(missing)}, or the token of a preview")
        return self

    checks: dict[str, Any] = {"is_whole": model_validator(mode="after")(is_whole)}
    model: type[Request] = create_model(
        f"{act.__name__}Request",
        __base__=Request,
        __doc__="Asks for a preview, and then with its ``token`` for what it has shown."
        if act.previewed
        else "Is an empty object.",
        __validators__=checks,
        **found,
    )
    return model


def _answer(act: type[Act[Any, Any]]) -> type[Answer]:
    data = data_type(act)
    more: dict[str, Any] = {"done": (bool, ...)}
    if act.previewed:
        more |= {"obstacle": (str | None, ...), "token": (str | None, ...)}
    model: type[Answer] = create_model(
        f"{act.__name__}Answer", __base__=_model(data), __doc__=data.__doc__, **more
    )
    return model


def _model(data: type) -> type[Answer]:
    """Return the answer that has the fields of a dataclass."""
    hints = get_type_hints(data)
    found: dict[str, Any] = {one.name: (_kind(hints[one.name]), ...) for one in fields(data)}
    model: type[Answer] = create_model(
        data.__name__, __base__=Answer, __doc__=data.__doc__, **found
    )
    return model


def _kind(hint: Any) -> Any:
    if get_origin(hint) is list:
        return list[_kind(get_args(hint)[0])]  # type: ignore[misc]
    if get_origin(hint) is UnionType:
        return Union[tuple(map(_kind, get_args(hint)))]  # noqa: UP007
    if hint is datetime:
        return Instant
    return _model(hint) if isinstance(hint, type) and is_dataclass(hint) else hint


for _noun, _place in PLACES.items():
    for _act in ACTS[_noun]:
        _add(_act, _place)
