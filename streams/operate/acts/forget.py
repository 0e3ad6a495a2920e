"""Forgets a stream of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.errors import PreviewStale
from streams.models import Reader
from streams.operate.acts.act import Act, Consent, Effects
from streams.retain.readers import readers, unread_text


@dataclass(frozen=True)
class ForgottenReader:
    """How many messages a stream has not read, and whether a purge has waited for it."""

    unread: int
    protects: bool


@dataclass(frozen=True)
class Forgotten(Effects):
    """A stream as it was when it was forgotten."""

    reader: Reader
    unread: int
    protects: bool

    def texts(self) -> list[str]:
        texts = [_("forgotten; %s") % unread_text(self.unread)]
        if self.protects:
            texts.append(_("A purge does not wait for it any more."))
        return texts

    def data(self) -> ForgottenReader:
        return ForgottenReader(self.unread, self.protects)

    @property
    def shown(self) -> Any:
        return [self.reader.pk, self.reader.seen_at.isoformat()]


@dataclass(frozen=True)
class ForgetReader(Act[Reader, Forgotten]):
    """The end of what EMS knows of a stream."""

    name = "forget"
    permission = "ems.forget_reader"
    label = gettext_lazy("Forget")
    text = gettext_lazy(
        "EMS forgets where the stream is, and no purge waits for it. Its checkpoint stays as it is:"
        " a query that runs, or is started again, is known again, and goes on where it was."
    )
    destroys = True
    deletes = True

    def preview(self, row: Reader, using: str) -> Forgotten:
        for one in readers(using, row.topic):
            if one.reader.pk == row.pk:
                return Forgotten(one.reader, one.behind, one.protects)
        raise PreviewStale

    def run(self, row: Reader, using: str, consent: Consent) -> Forgotten:
        found = self.preview(row, using)
        consent(found)
        if not found.reader.forget():
            raise PreviewStale
        return found
