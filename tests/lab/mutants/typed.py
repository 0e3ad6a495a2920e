"""Lists the mutants of typed bodies."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

CALLING = "streams/consume/calling.py"
CONSUMING = "tests/guarantees/test_typed_bodies.py"
BODIES = "tests/streams/test_typed_bodies.py"

TYPED = [
    Mutant(
        "a-body-that-does-not-fit-retried",
        "streams/errors.py",
        "class InvalidBody(InvalidMessage, Reject):",
        "class InvalidBody(InvalidMessage):",
        f"{CONSUMING}::test_it_is_a_dead_letter_at_once_and_the_handler_is_not_called",
    ),
    # Left out of the call, and done with it.
    Mutant(
        "a-body-that-does-not-fit-passed-over-in-a-batch",
        CALLING,
        "return {**(returned or {}), **self._refused} or None",
        "return returned",
        f"{CONSUMING}::test_in_a_batch_only_such_messages_are_dead_letters",
    ),
    Mutant(
        "a-body-that-does-not-fit-fails-as-the-others-of-its-batch",
        CALLING,
        "Failure(message.offset, refused.get(message, error))",
        "Failure(message.offset, error)",
        f"{CONSUMING}::test_they_are_dead_letters_though_the_call_for_the_others_fails",
    ),
    Mutant(
        "what-comes-after-it-handled-before-its-turn",
        CALLING,
        "self._registration.ordered is True",
        "False",
        f"{CONSUMING}::test_in_an_ordered_batch_what_comes_after_it_is_handled_once_and_in_its_turn",
    ),
    Mutant(
        "a-failed-validator-takes-the-batch-along",
        "streams/consume/typed.py",
        "except Exception as error:  # noqa: BLE001 - a validator may raise anything",
        "except ValueError as error:",
        f"{CONSUMING}::test_a_validator_that_fails_otherwise_is_a_failed_attempt",
    ),
    Mutant(
        "a-value-sent-that-nobody-can-read",
        "streams/body.py",
        "            _check(kind, raw)\n",
        "            pass\n",
        f"{BODIES}::test_a_value_that_no_consumer_of_the_type_could_read_is_not_sent",
    ),
    Mutant(
        "levels-of-a-value-in-a-dict-not-counted",
        "streams/body.py",
        "            value = plain(value)\n            text = _to_json(value)",
        "            text = _to_json(plain(value))",
        f"{BODIES}::test_a_value_has_the_limits_of_any_body",
    ),
    Mutant(
        "pydantic-converts-for-a-dataclass",
        "streams/typed/pydantic_models.py",
        "None if is_of_pydantic(kind) else True",
        "None",
        f"{BODIES}::test_a_model_converts_what_it_says_and_a_dataclass_nothing",
    ),
    Mutant(
        "an-edited-body-not-checked",
        "streams/operate/edited_letter.py",
        "        check_body(topic, letter.group.name, row.body, row.body_type)\n",
        "",
        "tests/streams/test_letter_edit.py"
        "::test_an_edited_body_is_of_the_type_that_the_consumer_has",
    ),
    Mutant(
        "a-rehearsal-that-passes-what-it-has-not-called",
        "streams/operate/rehearsal.py",
        "atomic=True, ordered=False)",
        "atomic=True)",
        "tests/guarantees/test_rehearsals.py::test_a_body_that_is_not_of_the_type_fails_alone",
    ),
    Mutant(
        "references-to-where-a-schema-does-not-stand",
        "streams/typed/structs.py",
        'place = f"{at}/$defs/"',
        'place = "#/$defs/"',
        "tests/commands/test_contract.py::test_every_reference_of_the_document_leads_to_something",
    ),
]
