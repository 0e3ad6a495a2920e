"""Carries out an act as each face does it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.messages import SUCCESS, get_messages
from django.core.management import CommandError
from django.db.models import Model
from django.urls import reverse

from streams.models import ConsumerGroup, HeldKey, PreparedRow, Reader, Redrive, Topic
from streams.operate.acts.act import Act
from tests.admin.conftest import action

AnyAct = type[Act[Any, Any]]

WORDS: dict[type[Model], Callable[[Any], tuple[str, ...]]] = {
    ConsumerGroup: lambda row: (row.name, "--topic", row.topic.name),
    Topic: lambda row: (row.name,),
    HeldKey: lambda row: (str(row.pk),),
    Reader: lambda row: (str(row.pk),),
    Redrive: lambda row: (str(row.pk),),
    PreparedRow: lambda row: (row.biz, row.biz_key),
}
COMMANDS: dict[type[Model], str] = {
    ConsumerGroup: "ems_groups",
    Topic: "ems_topics",
    HeldKey: "ems_keys",
    Reader: "ems_readers",
    Redrive: "ems_redrives",
    PreparedRow: "ems_prepared",
}
PATHS: dict[type[Model], Callable[[Any], str]] = {
    ConsumerGroup: lambda row: f"/topics/{row.topic.name}/groups/{row.name}",
    Topic: lambda row: f"/topics/{row.name}",
    HeldKey: lambda row: f"/topics/{row.group.topic.name}/groups/{row.group.name}/keys/{row.pk}",
    Redrive: lambda row: f"/dead/redrives/{row.pk}",
}


class Refused(Exception):
    """Says why a face did not do it."""


@dataclass
class Page:
    """The admin, with a browser."""

    client: Any
    typed: str = ""

    def preview(self, act: AnyAct, row: Model, arguments: Mapping[str, Any]) -> str:
        shown = self._posted(act, row, **arguments)
        found = re.search(r'name="offer" value="([^"]*)"', shown.text)
        if not found:
            raise Refused(html.unescape(re.sub(r"<[^>]*>", " ", shown.text)))
        asked = re.search(r"To go on, type: ([^<]*)", shown.text)
        self.typed = asked[1] if asked else ""
        return found[1]

    def carry_out(self, act: AnyAct, row: Model, offer: str) -> None:
        shown = self._posted(act, row, **({"offer": offer, "typed": self.typed} if offer else {}))
        if shown.status_code != 302:
            raise Refused(html.unescape(re.sub(r"<[^>]*>", " ", shown.text)))
        told = list(get_messages(shown.wsgi_request))
        if offer and any(one.level > SUCCESS for one in told):
            raise Refused(*told)

    def _posted(self, act: AnyAct, row: Model, **fields: str) -> Any:
        name = f"{row._meta.app_label}_{row._meta.model_name}"
        url = reverse(f"admin:{name}_changelist")
        return self.client.post(url, action(act.name, row.pk, **fields))


@dataclass
class Command:
    """The command of the model; it shows, asks, and carries out in one run."""

    run: Callable[..., str]

    def preview(self, act: AnyAct, row: Model, arguments: Mapping[str, Any]) -> str:
        try:
            return self.run(*self._words(act, row, arguments), "--dry-run")
        except CommandError as error:
            raise Refused(str(error)) from error

    def carry_out(self, act: AnyAct, row: Model, arguments: Mapping[str, Any]) -> None:
        more = ["--yes"] if act.previewed else []
        try:
            self.run(*self._words(act, row, arguments), *more)
        except CommandError as error:
            raise Refused(str(error)) from error

    def _words(self, act: AnyAct, row: Model, arguments: Mapping[str, Any]) -> list[str]:
        given = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        return [COMMANDS[type(row)], act.name, *WORDS[type(row)](row), *given]


@dataclass
class Http:
    """The HTTP API, with a token."""

    api: Any

    def preview(self, act: AnyAct, row: Model, arguments: Mapping[str, Any]) -> str:
        told = self._told(act, row, arguments)
        assert told["done"] is False
        return str(told["token"])

    def carry_out(self, act: AnyAct, row: Model, token: str) -> None:
        assert self._told(act, row, {"token": token} if token else {})["done"] is True

    def _told(self, act: AnyAct, row: Model, content: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.api.post(f"{PATHS[type(row)](row)}/{act.name}", dict(content))
        told: dict[str, Any] = answer.json()
        if answer.status_code >= 400:
            raise Refused(f"{told['code']} {told['detail']} {told.get('errors', '')}")
        return told
