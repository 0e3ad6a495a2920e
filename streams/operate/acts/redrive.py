"""Stops redrives at a rate, and lets them go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext_lazy

from streams.models import Redrive, RedriveState
from streams.operate.acts.act import Act, Consent, Effects


@dataclass(frozen=True)
class TurnedRedrive(Effects):
    """Whether the redrive was in another state before, and in which one it is now."""

    changed: bool
    state: str

    def texts(self) -> list[str]:
        return [str(RedriveState(self.state).label)] if self.changed else []


@dataclass(frozen=True)
class _TurnRedrive(Act[Redrive, TurnedRedrive]):
    permission = "ems.redrive_deadmessage"
    previewed = False
    before: ClassVar[RedriveState]

    @classmethod
    def is_offered(cls, row: Redrive, using: str) -> bool:
        return row.state == cls.before


@dataclass(frozen=True)
class StopRedrive(_TurnRedrive):
    """The end of a redrive for now."""

    name = "stop"
    label = gettext_lazy("Stop")
    text = gettext_lazy("No more dead letters are redriven; it can go on later.")
    before = RedriveState.RUNNING

    def run(self, row: Redrive, using: str, consent: Consent) -> TurnedRedrive:
        return TurnedRedrive(row.stop(), row.state)


@dataclass(frozen=True)
class ResumeRedrive(_TurnRedrive):
    """The end of such a stop."""

    name = "resume"
    label = gettext_lazy("Go on")
    text = gettext_lazy("A redrive that was stopped goes on where it was.")
    before = RedriveState.STOPPED

    def run(self, row: Redrive, using: str, consent: Consent) -> TurnedRedrive:
        return TurnedRedrive(row.resume(), row.state)
