"""Validates names and keys: their length and their characters."""

from __future__ import annotations

import re
import unicodedata
from typing import Any
from uuid import UUID

from streams.rules.errors import InvalidName

# In characters: the lengths of the columns that hold these names.
MAX_NAME, MAX_KEY, MAX_TAG, MAX_PRODUCER = 127, 255, 64, 190
# Of prepared messages: the business, and who is asked what became of one.
MAX_BIZ, MAX_CHECKER = 64, 127

_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")


def text_of_key(key: Any) -> Any:
    """Return the text of a key that is an int or a UUID; anything else as it is.

    Raises InvalidName for an int that is too long.
    """
    if isinstance(key, int) and not isinstance(key, bool):
        if abs(key) >= 10**MAX_KEY:
            raise InvalidName(f"The key is longer than {MAX_KEY} digits.")
        return str(int(key))  # also of an enum, whose own text may be its name
    return str(key) if isinstance(key, UUID) else key


def validated_key(key: Any, what: str = "key", max_length: int = MAX_KEY) -> str:
    """Return a key as text; raises InvalidName if it could not be stored and found unchanged.

    ``what`` is the kind of key, for the text of the error.
    """
    text = text_of_key(key)
    if not isinstance(text, str):
        raise InvalidName(f"The {what} must be a string, not {text!r}.")
    if not text or text != text.strip():
        raise InvalidName(f"The {what} {text!r} is empty or has blanks around it.")
    if len(text) > max_length:
        raise InvalidName(f"The {what} is longer than {max_length} characters: {text[:40]!r}…")
    if not text.isprintable():
        raise InvalidName(f"The {what} {text!r} has characters that cannot be printed.")
    return text


def validated_name(name: Any, what: str, max_length: int) -> str:
    """Return the name of a topic, group, tag, …; raises InvalidName.

    It has Unicode letters, digits and ``. _ - :`` only. So a place in a log, ``topic/0@17``, has
    one meaning, and a name needs no quoting in a shell, a URL or a list.
    """
    if not isinstance(name, str):  # an int may be a key, and is not a name
        raise InvalidName(f"The {what} must be a string, not {name!r}.")
    valid = not_dots(validated_key(name, what, max_length), what)
    if not _PLAIN.fullmatch(valid) and not all(map(_may_be_in_a_name, valid)):
        raise InvalidName(f"A {what} has letters, digits and . _ - : only: {name!r} has others.")
    if not unicodedata.is_normalized("NFC", valid):
        raise InvalidName(
            f"The {what} {name!r} is not in the normal form NFC: another name would look the same."
        )
    return valid


def not_dots(name: str, what: str) -> str:
    """Return ``name``; raises InvalidName for ``.`` and ``..``, which a URL cannot name."""
    if name in (".", ".."):
        raise InvalidName(f"The {what} cannot be {name!r}: in a URL that is another place.")
    return name


def _may_be_in_a_name(character: str) -> bool:
    # M: marks, without which the words of many languages cannot be written.
    category = unicodedata.category(character)
    return character in "._-:" or category[0] in "LM" or category == "Nd"
