"""Validates names and keys: their length and their characters."""

from __future__ import annotations

import re
import unicodedata
from typing import Any
from uuid import UUID

from streams.rules.errors import InvalidName
from streams.rules.errors import gettext as _

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
            raise InvalidName(_("The key is longer than %d digits.") % MAX_KEY)
        return str(int(key))  # also of an enum, whose own text may be its name
    return str(key) if isinstance(key, UUID) else key


def validated_key(key: Any, what: str = "key", max_length: int = MAX_KEY) -> str:
    """Return a key as text; raises InvalidName if it could not be stored and found unchanged.

    ``what`` is the kind of key. It is translated here, because decorators validate names before
    the apps are ready.
    """
    text = text_of_key(key)
    if not isinstance(text, str):
        raise InvalidName(_("The %s must be a string, not %r.") % (_(what), text))
    if not text or text != text.strip():
        raise InvalidName(_("The %s %r is empty or has blanks around it.") % (_(what), text))
    if len(text) > max_length:
        raise InvalidName(
            _("The %(what)s is longer than %(max)d characters: %(name)r…")
            % {"what": _(what), "max": max_length, "name": text[:40]}
        )
    if not text.isprintable():
        raise InvalidName(_("The %s %r has characters that cannot be printed.") % (_(what), text))
    return text


def validated_name(name: Any, what: str, max_length: int) -> str:
    """Return the name of a topic, group, tag, …; raises InvalidName.

    It has Unicode letters, digits and ``. _ - :`` only. So a place in a log, ``topic/0@17``, has
    one meaning, and a name needs no quoting in a shell, a URL or a list.
    """
    if not isinstance(name, str):  # an int may be a key, and is no name
        raise InvalidName(_("The %s must be a string, not %r.") % (_(what), name))
    valid = not_dots(validated_key(name, what, max_length), what)
    if not _PLAIN.fullmatch(valid) and not all(map(_may_be_in_a_name, valid)):
        raise InvalidName(
            _("A %s has letters, digits and . _ - : only: %r has others.") % (_(what), name)
        )
    if not unicodedata.is_normalized("NFC", valid):
        raise InvalidName(
            _("The %s %r is not in the normal form NFC: another name would look the same.")
            % (_(what), name)
        )
    return valid


def not_dots(name: str, what: str) -> str:
    """Return ``name``; raises InvalidName for ``.`` and ``..``, which a URL cannot name."""
    if name in (".", ".."):
        text = _("The %s cannot be %r: in a URL that is another place.")
        raise InvalidName(text % (_(what), name))
    return name


def _may_be_in_a_name(character: str) -> bool:
    # M: marks, without which the words of many languages cannot be written.
    category = unicodedata.category(character)
    return character in "._-:" or category[0] in "LM" or category == "Nd"
