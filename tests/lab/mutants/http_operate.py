"""Lists the mutants of what operators do over HTTP."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

OPERATE = "tests/http/test_operate.py"

HTTP_OPERATE = [
    Mutant(
        "a-preview-may-be-used-again",
        "streams/operate/acts/act.py",
        "        if self.shown is not None and found.shown != self.shown:\n",
        "        if False:\n",
        f"{OPERATE}::test_a_reset_does_what_its_preview_has_shown_and_once",
    ),
    Mutant(
        "a-preview-is-of-use-to-every-token",
        "streams/http/offers.py",
        "    if (prefix, of) != (caller.prefix, about):\n",
        "    if of != about:\n",
        f"{OPERATE}::test_a_preview_is_of_use_to_its_token_and_for_ten_minutes",
    ),
    Mutant(
        "letters-of-others-by-their-ids",
        "streams/http/letters.py",
        '    return [row for row in rows.order_by("pk") if caller.may(verb, place(row.group))]\n',
        '    return list(rows.order_by("pk"))\n',
        f"{OPERATE}::test_dead_letters_are_redriven_once",
    ),
    Mutant(
        "any-number-discards",
        "streams/http/routes/dead.py",
        "    if len(found) != len(ids):\n",
        "    if False:\n",
        f"{OPERATE}::test_dead_letters_are_discarded_only_as_they_were_shown",
    ),
    Mutant(
        "bodies-for-who-may-read-metadata",
        "streams/http/routes/messages.py",
        '    may = request.auth.may("body", row.partition.topic.name)\n',
        "    may = True\n",
        "tests/http/test_look.py::test_a_message_has_its_body_for_who_may_read_bodies",
    ),
    Mutant(
        "any-checker-may-be-named",
        "streams/http/routes/prepared.py",
        '    caller.needs("check", message.checker)\n',
        "",
        "tests/http/test_prepared.py::test_each_of_the_three_rights_is_needed",
    ),
]
