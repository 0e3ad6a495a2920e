"""Pauses groups, and lets them go on."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.models import ConsumerGroup
from streams.operate.acts.act import Act, Consent, Effects


@dataclass(frozen=True)
class TurnedGroup(Effects):
    """Whether the group is paused, and whether it was otherwise before."""

    paused: bool
    changed: bool

    def texts(self) -> list[str]:
        return [_("paused") if self.paused else _("resumed")] if self.changed else []


@dataclass(frozen=True)
class _TurnGroup(Act[ConsumerGroup, TurnedGroup]):
    previewed = False

    def _turn(self, row: ConsumerGroup, using: str, *, paused: bool) -> TurnedGroup:
        rows = ConsumerGroup.objects.using(using).filter(pk=row.pk)
        changed = (rows.pause if paused else rows.resume)()
        row.paused = paused
        return TurnedGroup(paused, bool(changed))


@dataclass(frozen=True)
class Pause(_TurnGroup):
    """A stop of all claims of a group; calls that run are finished."""

    name = "pause"
    permission = "ems.pause_consumergroup"
    label = gettext_lazy("Pause")
    text = gettext_lazy("The group claims nothing more; calls that run are finished.")

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        return not row.paused

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> TurnedGroup:
        return self._turn(row, using, paused=True)


@dataclass(frozen=True)
class Resume(_TurnGroup):
    """The end of a pause."""

    name = "resume"
    permission = "ems.resume_consumergroup"
    label = gettext_lazy("Resume")
    text = gettext_lazy("The group goes on claiming.")

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        return row.paused

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> TurnedGroup:
        return self._turn(row, using, paused=False)
