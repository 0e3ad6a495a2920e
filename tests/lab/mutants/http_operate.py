"""Lists the mutants of what operators do over HTTP."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

LOST_REPLIES = "tests/contract/test_lost_replies.py::test_an_act_whose_reply_is_lost_is_done_once"
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
    Mutant(
        "replay-begun-again-after-its-commit",
        "streams/operate/replay.py",
        "            if tried and _is_about",
        "            if False and _is_about",
        f"{LOST_REPLIES}[ReplayToGroup]",
        "mysql",
    ),
    Mutant(
        "replay-of-a-preview-begun-twice",
        "streams/operate/replay.py",
        "            check(number)\n",
        "",
        "tests/contract/test_acts.py::test_what_was_shown_is_done_once[ReplayToGroup-page]",
    ),
    Mutant(
        "growth-refused-after-its-commit",
        "streams/operate/topics.py",
        "            if tried and not new:\n",
        "            if False:\n",
        f"{LOST_REPLIES}[GrowTopic]",
        "mysql",
    ),
    Mutant(
        "retirement-refused-after-it-was-done",
        "streams/operate/topics.py",
        "        return bool(open_.update(access=Access.READ_ONLY)) or repeated\n",
        "        return bool(open_.update(access=Access.READ_ONLY))\n",
        f"{LOST_REPLIES}[RetireTopic]",
        "mysql",
    ),
]
