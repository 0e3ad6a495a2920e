"""Acts: what an operator asks for. The faces are written once, and read ACTS."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Model

from streams.models import ConsumerGroup, HeldKey, PreparedRow, Reader, Redrive, Topic
from streams.operate.acts.act import Act
from streams.operate.acts.delete import DeleteGroup
from streams.operate.acts.forget import ForgetReader
from streams.operate.acts.give_up import GiveUpCall
from streams.operate.acts.held_keys import RetryKeyNow, SkipKeyToDeadLetters
from streams.operate.acts.order import OrderByKey
from streams.operate.acts.pause import Pause, Resume
from streams.operate.acts.prepared import (
    CheckNow,
    CommitPrepared,
    ResendPrepared,
    RollBackPrepared,
)
from streams.operate.acts.redrive import ResumeRedrive, StopRedrive
from streams.operate.acts.replay import CancelReplay, ReplayToGroup
from streams.operate.acts.reset import ResetGroup, UndoReset
from streams.operate.acts.topic import GrowTopic, RetireTopic
from streams.operate.acts.unblock import RetryNow, SkipToDeadLetters

ACTS: dict[type[Model], tuple[type[Act[Any, Any]], ...]] = {
    ConsumerGroup: (
        *(Pause, Resume, RetryNow, SkipToDeadLetters, ResetGroup, UndoReset),
        *(ReplayToGroup, CancelReplay, GiveUpCall, OrderByKey, DeleteGroup),
    ),
    HeldKey: (RetryKeyNow, SkipKeyToDeadLetters),
    Topic: (GrowTopic, RetireTopic),
    Reader: (ForgetReader,),
    Redrive: (StopRedrive, ResumeRedrive),
    PreparedRow: (CheckNow, CommitPrepared, RollBackPrepared, ResendPrepared),
}


def offer(model: type[Model], acts: Sequence[type[Act[Any, Any]]]) -> None:
    """Add the acts on the rows of another app."""
    ACTS[model] = tuple(acts)
