"""Decides about prepared messages, in place of their callers and checkers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.errors import InvalidValue, PreviewStale
from streams.models import PreparedRow, PreparedState
from streams.operate.acts.act import Act, Consent, Effects, Table, Text
from streams.two_phase.decide import commit, refusal, roll_back
from streams.two_phase.operator import check_now, send_again, send_anyway
from streams.two_phase.record import OPERATOR


@dataclass(frozen=True)
class CheckAsked(Effects):
    """Whether the checker of a prepared message is asked at the next step."""

    asked: bool

    def texts(self) -> list[str]:
        return [_("asked about at the next step")] if self.asked else []


@dataclass(frozen=True)
class CheckNow(Act[PreparedRow, CheckAsked]):
    """A question to its checker, once more if a person was to decide."""

    name = "check"
    permission = "ems.check_prepared"
    label = gettext_lazy("Check now")
    text = gettext_lazy("Its checker is asked at the next step.")
    previewed = False

    @classmethod
    def is_offered(cls, row: PreparedRow, using: str) -> bool:
        return row.is_undecided

    def run(self, row: PreparedRow, using: str, consent: Consent) -> CheckAsked:
        return CheckAsked(check_now(row, using))


@dataclass(frozen=True)
class PreparedNow:
    """How a prepared message stands, and which message it has become."""

    state: str
    message_id: int | None


@dataclass(frozen=True)
class Decided(Effects):
    """What becomes of a prepared message."""

    row: PreparedRow
    outcome: str

    def texts(self) -> list[str]:
        return [self.outcome]

    def table(self) -> Table:
        row = self.row
        columns = (_("Key"), _("Topic"), _("State"), _("Last answer"))
        return Table(
            columns, [(str(row), row.topic, row.get_state_display(), row.last_answer or None)]
        )

    def data(self) -> PreparedNow:
        return PreparedNow(self.row.state, self.row.message_id)

    @property
    def shown(self) -> list[str | bool | None]:
        return [self.row.state, self.row.message_id is None, self.row.is_disputed]

    @property
    def typed(self) -> str:
        return str(self.row.biz_key)


@dataclass(frozen=True)
class _Decide(Act[PreparedRow, Decided]):
    destroys = True
    outcome: ClassVar[Text]

    @classmethod
    def is_offered(cls, row: PreparedRow, using: str) -> bool:
        return row.is_undecided

    @classmethod
    def is_one_of_many(cls, row: PreparedRow) -> bool:
        return row.state == PreparedState.MANUAL

    def preview(self, row: PreparedRow, using: str) -> Decided:
        """Raises AlreadyDecided."""
        if not self.is_offered(row, using):
            raise refusal(row)
        return Decided(row, str(self.outcome))

    def run(self, row: PreparedRow, using: str, consent: Consent) -> Decided:
        """Raises AlreadyDecided."""
        now = PreparedRow.objects.using(using).get(pk=row.pk)
        consent(self.preview(now, using))
        return self._decide(now, OPERATOR + consent.who, using)

    def _decide(self, row: PreparedRow, by: str, using: str) -> Decided:
        raise NotImplementedError


@dataclass(frozen=True)
class CommitPrepared(_Decide):
    """The commit in place of the caller."""

    name = "commit"
    permission = "ems.commit_prepared"
    label = gettext_lazy("Commit")
    text = gettext_lazy("It will be sent to its topic. This cannot be undone.")
    outcome = gettext_lazy("committed")

    def _decide(self, row: PreparedRow, by: str, using: str) -> Decided:
        return _sent(commit(row.biz, row.biz_key, by=by, using=using), str(self.outcome))


@dataclass(frozen=True)
class RollBackPrepared(_Decide):
    """The rollback in place of the caller; of what is disputed: the check was right."""

    name = "rollback"
    permission = "ems.rollback_prepared"
    label = gettext_lazy("Roll back")
    text = gettext_lazy("It will not be sent. A caller that comes later to commit gets an error.")
    outcome = gettext_lazy("rolled back")

    @classmethod
    def is_offered(cls, row: PreparedRow, using: str) -> bool:
        return row.is_undecided or row.is_disputed

    def _decide(self, row: PreparedRow, by: str, using: str) -> Decided:
        done = roll_back(row.biz, row.biz_key, by=by, using=using)
        return Decided(done, str(self.outcome))


@dataclass(frozen=True)
class ResendPrepared(_Decide):
    """Another try to send what was committed, or the message of what was rolled back."""

    name = "resend"
    permission = "ems.commit_prepared"
    label = gettext_lazy("Send")
    text = gettext_lazy(
        "What could not be sent is tried again. What was rolled back is sent anyway, once."
    )
    outcome = gettext_lazy("sent")

    @classmethod
    def is_offered(cls, row: PreparedRow, using: str) -> bool:
        states = (PreparedState.UNSENT, PreparedState.ROLLED_BACK)
        return row.state in states and row.message_id is None

    def preview(self, row: PreparedRow, using: str) -> Decided:
        """Raises InvalidValue."""
        if not self.is_offered(row, using):
            raise InvalidValue(_("%s is neither unsent nor rolled back.") % row)
        return Decided(row, str(self.outcome))

    def _decide(self, row: PreparedRow, by: str, using: str) -> Decided:
        if row.state == PreparedState.UNSENT:
            send_again(row, using)
        elif not send_anyway(row, by, using):
            raise PreviewStale
        return _sent(PreparedRow.objects.using(using).get(pk=row.pk), str(self.outcome))


def _sent(row: PreparedRow, outcome: str) -> Decided:
    if row.message_id is None:
        outcome = _("committed, and waits for its topic: %s") % row.last_error
    return Decided(row, outcome)
