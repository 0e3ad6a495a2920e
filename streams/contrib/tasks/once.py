"""Lets an act enqueue one task, although it may be tried several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from streams.contrib.tasks.envelope import new_nonce
from streams.operate.acts.act import Consent

T = TypeVar("T", bound=Any)  # a dataclass with a result_id


class Once:
    """The only enqueue of one call of an act.

    ``mark`` is in the key of the message. So a further try finds whether an earlier one was
    committed, and only its reply was lost: then it does not enqueue again.
    """

    def __init__(self, consent: Consent) -> None:
        self.mark = new_nonce()
        self._consent = consent
        self._tried: list[Any] = []

    def __call__(self, found: T, enqueue: Callable[[], Any], count: Callable[[], Any]) -> T:
        """Enqueue with the consent to ``found``, and count that; return what was done.

        All of it is one transaction, whose next try calls this again. Raises PreviewStale.
        """
        if not self._tried:
            self._consent(found)
        result = enqueue()
        if result.duplicate:
            found = self._tried[-1]
        else:
            if self._tried:  # they were rolled back, and others may have enqueued since
                self._consent(found)
            count()
            self._tried.append(found)
        return replace(found, result_id=result.id)
