"""Acts: what an operator asks for. One class a verb; the admin, the commands and HTTP run it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial
from types import UnionType
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin, get_type_hints

from django.db.models import Model
from django.utils.translation import gettext as _

from streams import signals
from streams.database.transactions import after_commit
from streams.errors import PreviewStale
from streams.logs import event

R = TypeVar("R", bound=Model)
E = TypeVar("E", bound="Effects")

Text = Any  # also one that is translated when it is shown

logger = logging.getLogger("streams.operate")


@dataclass(frozen=True)
class Table:
    """Rows with ``columns``, for people."""

    columns: Sequence[Text]
    rows: Sequence[Sequence[Any]]


class Effects:
    """What an act does, in a preview, or what it has done."""

    def texts(self) -> Sequence[str]:
        """Return it as texts for people; nothing if there is nothing to do."""
        raise NotImplementedError

    def table(self) -> Table | None:
        """Return it as a table, if it has several parts."""
        return None

    def data(self) -> Any:
        """Return it for programs: itself, or another dataclass, which the return type names."""
        return self

    @property
    def shown(self) -> Any:
        """Return, as JSON, what somebody agrees to who has seen this.

        Of two runs with one preview only the first one finds the same: it has a part that the act
        itself changes.
        """
        return None

    @property
    def too_long(self) -> str:
        """Return why it takes longer than a web request may; an empty text: it does not."""
        return ""

    @property
    def obstacle(self) -> str:
        """Return why only force carries it out; an empty text: nothing is in the way."""
        return ""

    @property
    def typed(self) -> str:
        """Return what a person must type on a page to go on; an empty text: nothing."""
        return ""

    @property
    def asks(self) -> str:
        """Return the text that asks for it."""
        return _("To go on, type: %s") % self.typed


@dataclass(frozen=True)
class Consent:
    """What somebody has agreed to: ``shown`` of a preview, or whatever there is (``None``).

    With ``force`` it is done although an obstacle is in the way. ``tell`` is called with a text
    for who looks on while it takes long.
    """

    who: str
    shown: Any = None
    force: bool = False
    tell: Callable[[str], None] = lambda text: None

    def __call__(self, found: Effects) -> None:
        """Raise PreviewStale if ``found``, read under the locks, is not what was shown."""
        if self.shown is not None and found.shown != self.shown:
            raise PreviewStale


@dataclass(frozen=True)
class Act(Generic[R, E]):
    """A verb of an operator on one row. The fields of a subclass are its arguments."""

    name: ClassVar[str]
    permission: ClassVar[str]
    label: ClassVar[Text]
    # What it does, for who decides about it.
    text: ClassVar[Text]
    previewed: ClassVar[bool] = True
    destroys: ClassVar[bool] = False
    # The row itself is gone after it.
    deletes: ClassVar[bool] = False
    # Its page asks for arguments first, though each of them may be left out.
    has_form: ClassVar[bool] = False
    forcible: ClassVar[bool] = False
    # The argument that an error is about, by its class.
    at_fault: ClassVar[Mapping[type[Exception], str]] = {}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the act with these arguments, by the names that faces have for them."""
        names = {_name(one): one.name for one in fields(cls)}
        return cls(**{names[name]: value for name, value in given.items()})

    @classmethod
    def is_offered(cls, row: R, using: str) -> bool:
        """Tell whether the page of the row has a button for it."""
        return True

    @classmethod
    def is_one_of_many(cls, row: R) -> bool:
        """Tell whether it may be done with several rows at once, of which this is one."""
        return False

    @classmethod
    def situation(cls, row: R, using: str) -> Table | None:
        """Return what somebody wants to see who fills in the arguments."""
        return None

    def preview(self, row: R, using: str) -> E:
        """Return what ``run()`` would do now; change nothing."""
        raise NotImplementedError

    def run(self, row: R, using: str, consent: Consent) -> E:
        """Do it, once, and return what was done; raises what the act names, and PreviewStale."""
        raise NotImplementedError

    def carry_out(self, row: R, using: str, consent: Consent) -> E:
        """Run it, and say in the log, and by the signal act_done, who has done what."""
        about = str(row)
        done = self.run(row, using, consent)
        if texts := done.texts():
            told = {"act": self.name, "row": row, "texts": texts, "who": consent.who}
            send = signals.act_done.send_robust
            after_commit(partial(send, type(row), using=using, **told), using)
        logger.info(
            "%s: %s, by %s",
            *(about, "; ".join(done.texts()), consent.who),
            extra=event("act.done", act=self.name, row=about, by=consent.who, database=using),
        )
        return done


@dataclass(frozen=True)
class Argument:
    """A field of an act, for the faces."""

    name: str
    kind: type
    is_required: bool
    default: Any
    help: Text
    metavar: str | None


def argument(meaning: Text, *, default: Any = MISSING, metavar: str | None = None) -> Any:
    """Return a field of an act."""
    return field(default=default, metadata={"help": meaning, "metavar": metavar})


def arguments(act: type[Act[Any, Any]]) -> list[Argument]:
    hints = get_type_hints(act)
    return [_argument(one, hints[one.name]) for one in fields(act)]


def _name(one: Field[Any]) -> str:
    return one.name.rstrip("_")  # from_, since from is a word of Python


def _argument(one: Field[Any], hint: Any) -> Argument:
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    (kind,) = (found for found in kinds if found is not type(None))
    is_required = one.default is MISSING
    default = None if is_required else one.default
    more = one.metadata
    return Argument(_name(one), kind, is_required, default, more["help"], more["metavar"])


def data_type(act: type[Act[Any, Any]]) -> type:
    """Return the dataclass of what the act's effects are for programs."""
    effects: Any = get_type_hints(act.run)["return"]
    named = get_type_hints(effects.data)["return"]
    found: type = effects if named is Any else named
    return found
