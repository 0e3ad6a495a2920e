"""Makes the AsyncAPI document of the project: its topics, their groups, and the types of bodies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from streams.consume.registry import Registration, autodiscover, registrations
from streams.models import ConsumerGroup, Topic
from streams.observe.contract.types import names_of
from streams.sharding import alias_of, aliases

VERSION = "3.0.0"
HEADERS = {"type": "object", "additionalProperties": {"type": "string"}}
# The message of a topic of which no consumer says a type.
ANY = "any"


def document(title: str, version: str) -> dict[str, Any]:
    """Return the document of all topics in the tables and in the code of the project.

    ``title`` and ``version`` are those of the document itself.
    """
    autodiscover()
    known = {(one.topic, one.group): one for one in registrations()}
    topics = _topics(known.values())
    types = [one.body for one in known.values() if one.body is not None]
    names = names_of(types)
    operations: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    for topic, groups in sorted(topics.items()):
        messages = {}
        for group, settings in sorted(groups.items()):
            one = known.get((topic, group))
            kind = one.body if one else None
            if kind is not None:
                messages[names[kind.kind]] = _message(names[kind.kind])
            operations[f"{topic}/{group}"] = _operation(
                topic, settings, one, names[kind.kind] if kind is not None else None
            )
        channels[topic] = {"address": topic, "messages": messages or {ANY: {"headers": HEADERS}}}
    return {
        "asyncapi": VERSION,
        "info": {"title": title, "version": version},
        "channels": channels,
        "operations": operations,
        "components": {
            "schemas": {
                names[one.kind]: one.schema(f"#/components/schemas/{names[one.kind]}")
                for one in types
            }
        },
    }


def _topics(known: Iterable[Registration]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the groups of each topic, and how each group is handled."""
    topics: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for alias in aliases():
        for name in Topic.objects.using(alias).values_list("name", flat=True):
            if alias_of(name) == alias:
                topics[name] = {}
        groups = ConsumerGroup.objects.using(alias).select_related("topic")
        for group in groups.filter(topic__in=Topic.objects.using(alias)):
            if alias_of(topic := group.topic.name) == alias:
                settings = {"mode": group.mode, "ordered": group.ordered}
                topics[topic][group.name] = {"group": group.name, **settings}
    for one in known:
        settings = {"mode": one.mode, "ordered": one.ordered, "tags": list(one.tags)}
        topics[one.topic][one.group] = {"group": one.group, **settings}
    return topics


def _message(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "contentType": "application/json",
        "headers": HEADERS,
        "payload": {"$ref": f"#/components/schemas/{name}"},
    }


def _operation(
    topic: str, settings: dict[str, Any], one: Registration | None, name: str | None
) -> dict[str, Any]:
    channel = f"#/channels/{quote(topic, safe='')}"
    operation: dict[str, Any] = {"action": "receive", "channel": {"$ref": channel}}
    if one is not None and (text := (one.handler.__doc__ or "").strip()):
        operation["summary"] = text.splitlines()[0]
    if name is not None:
        operation["messages"] = [{"$ref": f"{channel}/messages/{name}"}]
    return operation | {"x-ems": {**settings, "delivery": "at least once"}}
