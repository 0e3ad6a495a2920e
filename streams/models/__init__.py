"""Defines the tables of EMS, one in each file, with the state changes that keep its invariants."""

from streams.models.config import SystemConfig
from streams.models.consumer import Consumer
from streams.models.cursor import Cursor
from streams.models.dead import DeadMessage, Verdict
from streams.models.dedup import DedupKey
from streams.models.delivery import Delivery, Kind, State
from streams.models.endpoint import CheckEndpoint, Dialect
from streams.models.fields import UtcDateTimeField, UtcNow
from streams.models.group import ConsumerGroup, Mode, Start
from streams.models.held_key import HeldKey
from streams.models.key import KeyEntry
from streams.models.key_bucket import KeyBucket
from streams.models.letter_edit import LetterEdit
from streams.models.message import IMMEDIATE, BodyType, Message
from streams.models.move import Move
from streams.models.partition import Partition
from streams.models.prepared import PreparedRow, PreparedState
from streams.models.rate_bucket import RateBucket
from streams.models.reader import Reader
from streams.models.redrive import Redrive, RedriveState
from streams.models.retry import Again, RetryMessage
from streams.models.rewind import Rewind
from streams.models.step import Step
from streams.models.stress_run import StressRun
from streams.models.token import ApiRight, ApiToken, Verb
from streams.models.topic import Access, Topic

__all__ = [
    "IMMEDIATE",
    "Access",
    "Again",
    "ApiRight",
    "ApiToken",
    "BodyType",
    "CheckEndpoint",
    "Consumer",
    "ConsumerGroup",
    "Cursor",
    "DeadMessage",
    "DedupKey",
    "Delivery",
    "Dialect",
    "HeldKey",
    "KeyBucket",
    "KeyEntry",
    "Kind",
    "LetterEdit",
    "Message",
    "Mode",
    "Move",
    "Partition",
    "PreparedRow",
    "PreparedState",
    "RateBucket",
    "Reader",
    "Redrive",
    "RedriveState",
    "RetryMessage",
    "Rewind",
    "Start",
    "State",
    "Step",
    "StressRun",
    "SystemConfig",
    "Topic",
    "UtcDateTimeField",
    "UtcNow",
    "Verb",
    "Verdict",
]
