"""Defines signals that a project may listen to. docs/guides/extending.md shows how.

Each is sent after EMS has committed what it tells, never inside its transaction. A receiver that
raises is logged (logger ``django.dispatch``), and the work goes on. The sender is the class
ConsumerGroup, of ``topic_created`` the class Topic, of ``act_done`` the class of the row.
"""

from django.dispatch import Signal

# A handler has failed, and the message will come back. Arguments: topic, partition, offset, group,
# attempt, error, retry_in (a timedelta; None in a broadcast group, which goes on), using.
message_failed = Signal()

# A group has given up on a message; its dead letter is written. Arguments: topic, partition,
# offset, group, attempt, error, using.
message_dead = Signal()

# The messages of a claim were gone, purged or deleted, when they were to be read. Arguments: topic,
# partition, offsets (a sequence), group, using.
message_missing = Signal()

# The lease of a claim has ended, because its process died or its call took too long: what was not
# settled comes back. Arguments: topic, partition, first_offset, last_offset, group, attempt,
# client_id, using.
delivery_expired = Signal()

# A group was paused. Arguments: topic, group, using.
group_paused = Signal()

# An operator has changed a row by an act: in the admin, by a command or over HTTP. Arguments: act
# (its name), row, texts (what was done, for people), who, using.
act_done = Signal()

# A forced purge has skipped what groups had not finished in a partition. Arguments: topic,
# partition, messages, deliveries, retries (how many of each), using.
purge_forced = Signal()

# A topic was created, by a send, a command or the admin. Arguments: topic, using.
topic_created = Signal()

# Nobody has said what became of a prepared message: a person must decide. Arguments: biz, biz_key,
# topic, using. The sender of this and of the next two is the class PreparedRow.
prepared_manual = Signal()

# A committed message cannot be sent: its topic refuses it. Arguments: biz, biz_key, topic, using.
prepared_unsent = Signal()

# A check has rolled back what its caller came to commit later. Arguments: biz, biz_key, topic,
# using.
prepared_disputed = Signal()
