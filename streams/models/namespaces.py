"""Keeps the topics, groups and steps of other namespaces in the same tables out of sight.

The managers of Topic, ConsumerGroup and Step give only those of EMS["NAMESPACE"]. Rows that refer
to them are left out by log/foreign.py. OfNamespace is for models with a column of the namespace.
"""

from __future__ import annotations

import sys
from typing import TypeVar

from django.db import models
from django.db.models import Q, QuerySet, Value

from streams.conf import name_prefix, settings

# Stored names of a namespace begin with a blank; other names begin with a character above it.
MARK, ABOVE_MARK = " ", "!"
# Between a namespace and a name, and the character above it.
END, ABOVE_END = "/", "0"


def own(path: str) -> Q:
    """Return the condition that the stored name at ``path`` is of this namespace.

    As a range, which an index serves. The values are not prepared: they get no prefix.
    """
    prefix = name_prefix()
    if not prefix:
        return Q(**{f"{path}__gte": Value(ABOVE_MARK)})
    above = prefix.removesuffix(END) + ABOVE_END
    return Q(**{f"{path}__gte": Value(prefix), f"{path}__lt": Value(above)})


def own_range() -> tuple[str, str]:
    """Return the same range for a raw statement: from the first text, and below the second."""
    prefix = name_prefix()
    if not prefix:
        return ABOVE_MARK, chr(sys.maxunicode)
    return prefix, prefix.removesuffix(END) + ABOVE_END


_M = TypeVar("_M", bound=models.Model)


class OwnManager(models.Manager[_M]):
    """The rows of this namespace. ``_base_manager`` has all."""

    def get_queryset(self) -> QuerySet[_M]:
        return super().get_queryset().filter(own("name"))


def namespace() -> str:
    """Return the namespace of this process; "" is none."""
    return settings().NAMESPACE


class OfNamespace(models.Manager[_M]):
    """The rows whose column ``namespace`` is this one. ``_base_manager`` has all."""

    def get_queryset(self) -> QuerySet[_M]:
        return super().get_queryset().filter(namespace=namespace())


def split(stored: str) -> tuple[str, str]:
    """Return the namespace and the name of a stored name of another namespace."""
    if not stored.startswith(MARK):
        return "", stored
    namespace, _end, name = stored[len(MARK) :].partition(END)
    return namespace, name
