"""Leaves out what belongs to the topics of other namespaces, and says which ones there are."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

from django.db.models import QuerySet

from streams.models import Topic
from streams.models.namespaces import OfNamespace, OwnManager, own, split

_Rows = TypeVar("_Rows", bound=QuerySet[Any])


def foreign_topics(using: str) -> list[int]:
    """Return the ids of the topics of other namespaces; usually there are none."""
    rows = Topic._base_manager.using(using).filter(~own("name"))
    return list(rows.values_list("pk", flat=True))


def own_rows(rows: _Rows, using: str) -> _Rows:
    """Leave out rows of topics of other namespaces.

    As a list of ids, and only if there are some: a join could begin with the small table, and sort
    the large one.
    """
    if isinstance(rows.model._default_manager, OfNamespace | OwnManager):
        return rows
    topics = foreign_topics(using)
    if not topics:
        return rows
    relations = {f.name: f.related_model for f in rows.model._meta.fields if f.is_relation}
    if "topic" in relations:
        return rows.exclude(topic__in=topics)
    for name in ("partition", "group"):
        if name in relations:
            model: Any = relations[name]
            foreign = model._base_manager.using(using).filter(topic__in=topics)
            return rows.exclude(**{f"{name}__in": list(foreign.values_list("pk", flat=True))})
    return rows


def other_namespaces(using: str) -> dict[str, int]:
    """Return how many topics each other namespace has in this database; "" is none."""
    rows = Topic._base_manager.using(using).filter(~own("name"))
    return dict(Counter(split(name)[0] for name in rows.values_list("name", flat=True)))


def unread_here(using: str) -> list[str]:
    """Return the topics of this namespace that have no group, though one of another has.

    The names are those without their prefixes.
    """
    mine = Topic.objects.using(using).filter(groups=None).values_list("name", flat=True)
    theirs = Topic._base_manager.using(using).filter(~own("name"), groups__isnull=False)
    read = {split(name)[1] for name in theirs.values_list("name", flat=True)}
    return sorted(read.intersection(mine))
