"""Defines WithBody, the base of the models whose rows have a body that may be compressed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Self

from django.db import models

from streams.rules.errors import DamagedBody
from streams.rules.stored_body import from_stored, logical_type, to_stored


class WithBody(models.Model):
    """A row with the columns ``body``, ``body_type`` and ``size``.

    What was read from the database has the body and its type as they were sent. A save writes what
    the row has: see compress(). QuerySets see the columns, so ``values_list("body")`` gives what is
    stored.
    """

    body: Any

    class Meta:
        abstract = True

    @classmethod
    def from_db(
        cls,
        db: str | None,
        field_names: Collection[str],
        values: Collection[Any],
        **options: Any,
    ) -> Self:
        row = super().from_db(db, field_names, values, **options)
        read = row.__dict__
        if not {"body_type", "size"} <= read.keys():
            # Without them nobody can tell what the bytes are: they are read again when asked for.
            read.pop("body", None)
        elif "body" in read:
            try:
                read["body"] = from_stored(read["body"], read["body_type"], read["size"])
            except DamagedBody:  # the error of who asks for it, not of who reads the row
                del read["body"]
        if "body_type" in read:
            read["body_type"] = logical_type(read["body_type"])
        return row

    def refresh_from_db(
        self,
        using: str | None = None,
        fields: Iterable[str] | None = None,
        from_queryset: models.QuerySet[Self] | None = None,
    ) -> None:
        names = None if fields is None else list(fields)
        asked = "body" in (names or ())
        if names is not None and asked:
            names += ["body_type", "size"]
            self.__dict__.pop("body", None)
        # Also a body that was deferred is where its row is: no router is asked.
        super().refresh_from_db(using or self._state.db, names, from_queryset)
        if asked and "body" not in self.__dict__:
            raise DamagedBody

    def readable_body(self) -> bytes | None:
        """Return the body; None if what is stored is damaged."""
        try:
            return bytes(self.body)
        except DamagedBody:
            return None

    def compress(self) -> Self:
        """Make the body what is written, before a save; nobody may read it from this row after."""
        for name, value in stored(self.__dict__["body"], self.__dict__["body_type"]).items():
            setattr(self, name, value)
        return self


def stored(body: bytes | memoryview, body_type: str) -> dict[str, Any]:
    """Return the columns ``body`` and ``body_type`` as they are written."""
    raw, stored_type = to_stored(bytes(body), body_type)
    return {"body": raw, "body_type": stored_type}
