"""Lists the mutants of compressed bodies: readers that forget it, and limits that do."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

READERS = "tests/guarantees/test_compressed_bodies.py"
SPARK = "tests/spark/test_compressed_bodies.py"
HTTP = "tests/http/test_bodies.py"
BINARY_LOG = "tests/runtime/test_binary_log.py"

BODIES = [
    Mutant(
        "size-of-what-is-stored",
        "streams/produce/outgoing.py",
        "vendor, partition_id, due_sql, body, stored_type, len(raw), sender, named=named",
        "vendor, partition_id, due_sql, body, stored_type, len(body), sender, named=named",
        f"{READERS}::test_every_reader_of_messages_sees_what_was_sent",
    ),
    Mutant(
        "compressed-though-it-is-not-smaller",
        "streams/rules/stored_body.py",
        "        if len(compressed) < len(raw):\n",
        "        if compressed:\n",
        f"{READERS}::test_every_reader_of_messages_sees_what_was_sent",
    ),
    Mutant(
        "a-cut-body-is-whole",
        "streams/rules/stored_body.py",
        "    if not reader.eof or len(raw) > size:\n",
        "    if len(raw) > size:\n",
        f"{READERS}::test_a_damaged_body_is_an_error_and_never_grows_beyond_its_size",
    ),
    Mutant(
        "decompressed-without-a-bound",
        "streams/rules/stored_body.py",
        "        raw = reader.decompress(stored, size + 1)\n",
        "        raw = reader.decompress(stored)\n        size = len(raw)\n",
        f"{READERS}::test_a_damaged_body_is_an_error_and_never_grows_beyond_its_size",
    ),
    Mutant(
        "cut-where-the-body-would-be",
        "streams/rules/stored_body.py",
        "    return 2 * limit + 400\n",
        "    return limit\n",
        f"{READERS}::test_what_is_stored_gives_the_body_and_its_beginning",
    ),
    Mutant(
        "a-body-read-later-has-no-type",
        "streams/models/with_body.py",
        '            names += ["body_type", "size"]\n',
        "",
        f"{READERS}::test_every_reader_of_messages_sees_what_was_sent",
    ),
    Mutant(
        "spark-reads-a-body-without-its-type",
        "sparkjobs/source/reading.py",
        'needed = (BODY, "body_type", "size", "offset", *place)',
        'needed = (BODY, "size", "offset", *place)',
        f"{SPARK}::test_messages_are_read_as_they_were_sent",
    ),
    Mutant(
        "spark-gives-a-null-for-a-body-that-it-could-not-read",
        "sparkjobs/source/reading.py",
        "                elif self.request.mode == FAILFAST:\n",
        "                elif not self.request.mode:\n",
        f"{SPARK}::test_a_body_that_cannot_be_read_fails_the_read_and_is_named",
    ),
    Mutant(
        "spark-takes-what-it-does-not-know-for-a-body",
        "sparkjobs/source/arrow.py",
        "        if logical_type(stored_type) not in BODY_TYPES:\n",
        "        if not stored_type:\n",
        f"{SPARK}::test_a_body_that_cannot_be_read_fails_the_read_and_is_named",
    ),
    # It would end the process, and every one that claims it next.
    Mutant(
        "failed-bodies-read-again",
        "streams/deliver/calls.py",
        "sum(message.size for",
        "sum(len(message.raw_body) for",
        "tests/guarantees/test_compressed_bodies.py"
        "::test_a_message_with_a_damaged_body_fails_alone",
    ),
    # Every pull of the group would be a 500, and give all that it has claimed back.
    Mutant(
        "a-damaged-body-in-an-answer",
        "streams/http/pulling/handing_out.py",
        "open_whole(delivery, retry, limits, group.registration, _damage)",
        "open_whole(delivery, retry, limits, group.registration)",
        f"{HTTP}::test_a_damaged_body_in_a_pull_fails_alone",
    ),
    Mutant(
        "what-comes-after-damaged-bodies-is-done",
        "streams/deliver/opening.py",
        "        if messages:\n            break\n",
        "        break\n",
        f"{HTTP}::test_what_comes_after_damaged_bodies_is_handed_out_however_little_is_read_at_once",
    ),
    Mutant(
        "a-damaged-body-fails-the-rows-beside-it",
        "streams/models/with_body.py",
        '                del read["body"]\n',
        "                raise\n",
        f"{READERS}::test_a_damaged_body_is_the_error_of_who_asks_for_it",
    ),
    # What the project writes on this connection later would be without its columns.
    Mutant(
        "bodies-left-out-for-ever",
        "streams/database/binary_log.py",
        """cursor.execute("SET SESSION binlog_row_image = 'FULL'")""",
        """cursor.execute("SET SESSION binlog_row_image = 'NOBLOB'")""",
        f"{BINARY_LOG}::test_a_purge_leaves_its_connection_as_it_was",
        "mysql",
    ),
    Mutant(
        "binary-log-of-the-project-changed",
        "streams/database/binary_log.py",
        '(of_server, of_session) != ("FULL", "FULL")',
        'of_server != "FULL"',
        f"{BINARY_LOG}::test_what_the_project_has_chosen_stays",
        "mysql",
    ),
]
