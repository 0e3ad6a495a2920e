"""Deletes a group with all its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Model
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.models import ConsumerGroup
from streams.operate.acts.act import Act, Consent, Effects
from streams.operate.group_deletion import contents, delete_group, refuse_while_live

# In rows of a kind: counts end here, and to delete more takes longer than a web request should.
AT_MOST = 20_000


@dataclass(frozen=True)
class DeletedGroup:
    """Which rows go with a group; 20,001 means at least so many."""

    contents: dict[str, int]


@dataclass(frozen=True)
class Deleted(Effects):
    """The rows that go with a group, by their model."""

    group: ConsumerGroup
    contents: Mapping[type[Model], int]

    def texts(self) -> list[str]:
        return [_("deleted, with %s") % ", ".join(_counted(*one) for one in self.contents.items())]

    def data(self) -> DeletedGroup:
        return DeletedGroup(
            {str(model._meta.verbose_name_plural): n for model, n in self.contents.items()}
        )

    @property
    def shown(self) -> int:
        return self.group.pk  # it is deleted once; how many rows it has changes all the time

    @property
    def too_long(self) -> str:
        if sum(self.contents.values()) <= AT_MOST:
            return ""
        return _(
            "The group %(group)s has more than %(rows)d rows, too many for a web page:"
            " run “manage.py ems_groups delete”."
        ) % {"group": self.group, "rows": AT_MOST}

    @property
    def typed(self) -> str:
        return str(self.group.name)


def _counted(model: type[Model], rows: int) -> str:
    name: Any = model._meta.verbose_name if rows == 1 else model._meta.verbose_name_plural
    more = ">" if rows > AT_MOST else ""
    return f"{more}{number_format(min(rows, AT_MOST), force_grouping=True)} {name}"


@dataclass(frozen=True)
class DeleteGroup(Act[ConsumerGroup, Deleted]):
    """The end of a group and of all its rows."""

    name = "delete"
    permission = "ems.forget_consumergroup"
    label = gettext_lazy("Delete")
    text = gettext_lazy(
        "The group is deleted with its position, its retries, dead letters and deliveries. This"
        " cannot be undone. If its consumer is started again, the group begins anew."
    )
    destroys = True
    deletes = True

    def preview(self, row: ConsumerGroup, using: str) -> Deleted:
        """Raises GroupActive."""
        refuse_while_live(row)
        return Deleted(row, contents(row, AT_MOST + 1))

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> Deleted:
        """Raises GroupActive, also after some rows are deleted: it can be repeated."""
        found = Deleted(row, contents(row, AT_MOST + 1))

        def tell(rows: int) -> None:
            consent.tell(_("%s rows deleted") % number_format(rows, force_grouping=True))

        delete_group(row, tell)
        return found
