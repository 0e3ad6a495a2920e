"""Adds partitions to topics, and retires them."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from streams.errors import InvalidPartitions
from streams.models import Access, Topic
from streams.operate import topics
from streams.operate.acts.act import Act, Consent, Effects, argument

# What whoever adds partitions should know before.
GROWTH = gettext_lazy(
    "Partitions can only become more, and a key may go to another one than before: the order of its"
    " messages ends there and begins anew."
)


@dataclass(frozen=True)
class TopicGrown(Effects):
    """How many partitions a topic has then, and how many of them are new."""

    partitions: int
    new: int

    def texts(self) -> list[str]:
        if not self.new:
            return []
        text = ngettext(
            "%(new)d new partition, %(all)d in all",
            "%(new)d new partitions, %(all)d in all",
            self.new,
        )
        return [text % {"new": self.new, "all": self.partitions}, str(GROWTH)]

    @property
    def shown(self) -> list[int]:
        return [self.partitions, self.new]


@dataclass(frozen=True)
class GrowTopic(Act[Topic, TopicGrown]):
    """More partitions."""

    name = "grow"
    permission = "ems.grow_topic"
    label = gettext_lazy("Add partitions")
    text = GROWTH
    at_fault = {InvalidPartitions: "partitions"}

    partitions: int = argument(gettext_lazy("how many in all"), metavar="N")

    def preview(self, row: Topic, using: str) -> TopicGrown:
        """Raises InvalidPartitions."""
        return TopicGrown(self.partitions, topics.growing(row, self.partitions, using))

    def run(self, row: Topic, using: str, consent: Consent) -> TopicGrown:
        """Raises PreviewStale, too, if the topic has grown meanwhile."""
        wanted = self.partitions
        new = topics.grow(row, wanted, using, check=lambda new: consent(TopicGrown(wanted, new)))
        return TopicGrown(wanted, new)


@dataclass(frozen=True)
class TopicRetired(Effects):
    """Whether a topic takes no more messages, and has taken them before."""

    retired: bool

    def texts(self) -> list[str]:
        return [_("takes no more messages")] if self.retired else []

    @property
    def shown(self) -> bool:
        return self.retired


@dataclass(frozen=True)
class RetireTopic(Act[Topic, TopicRetired]):
    """The end of the sends to a topic."""

    name = "retire"
    permission = "ems.retire_topic"
    label = gettext_lazy("Retire")
    text = gettext_lazy(
        "The topic takes no more messages: its producers get an error. Its consumers finish what is"
        " there. To take it back, change the access."
    )

    @classmethod
    def is_offered(cls, row: Topic, using: str) -> bool:
        return row.access in (Access.READ_WRITE, Access.WRITE_ONLY)

    def preview(self, row: Topic, using: str) -> TopicRetired:
        return TopicRetired(self.is_offered(row, using))

    def run(self, row: Topic, using: str, consent: Consent) -> TopicRetired:
        """Raises PreviewStale if somebody else has retired it meanwhile."""
        done = TopicRetired(topics.retire(row, using))
        consent(done)  # if it is not so any more, nothing was done
        return done
