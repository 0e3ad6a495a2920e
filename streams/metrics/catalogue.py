"""Lists every metric: its name, kind, labels, buckets and meaning."""

from __future__ import annotations

from dataclasses import dataclass

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

TOPIC, GROUP = ("topic",), ("topic", "group")
FROM_HALF_A_MILLISECOND = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
OF_A_HANDLER = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OF_A_DELIVERY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)
OF_A_PASS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True)
class ExportedMetric:
    """One metric; ``labels`` are those of its own, without ``database``."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exported(self) -> tuple[str, ...]:
        """Return the names of its series."""
        if self.kind == HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)

    @property
    def all_labels(self) -> frozenset[str]:
        """Return the labels of its series in what EMS exposes."""
        more = {"database"} if self.name in DATABASE else set()
        return frozenset(self.labels) | more | ({"le"} if self.kind == HISTOGRAM else set())


def _named(*metrics: ExportedMetric) -> dict[str, ExportedMetric]:
    return {metric.name: metric for metric in metrics}


# What the tables say, and the server. Each has the label "database" too: the alias.
DATABASE: dict[str, ExportedMetric] = _named(
    ExportedMetric("ems_up", GAUGE, "1 if the tables could be read, otherwise 0 and nothing else."),
    ExportedMetric(
        "ems_scrape_seconds", GAUGE, "Seconds that the last reading of the tables took."
    ),
    ExportedMetric(
        "ems_sequenced_messages_total",
        COUNTER,
        "Messages that have got an offset.",
        ("topic", "partition"),
    ),
    ExportedMetric(
        "ems_claimed_messages_total",
        COUNTER,
        "Messages that the group has claimed, without retries and replays; a reset sets it back.",
        ("topic", "group", "partition"),
    ),
    ExportedMetric(
        "ems_log_messages", GAUGE, "Messages in the log, not purged yet.", ("topic", "partition")
    ),
    ExportedMetric(
        "ems_group_lag_messages", GAUGE, "Sequenced messages that wait for a first claim.", GROUP
    ),
    ExportedMetric(
        "ems_group_open_messages", GAUGE, "Messages claimed and not settled yet.", GROUP
    ),
    ExportedMetric("ems_group_retries", GAUGE, "Messages that wait for another attempt.", GROUP),
    ExportedMetric(
        "ems_group_dead_letters", GAUGE, "Dead letters that nobody has redriven.", GROUP
    ),
    ExportedMetric("ems_group_consumers", GAUGE, "Consumer processes with a live lease.", GROUP),
    ExportedMetric(
        "ems_group_oldest_message_seconds",
        GAUGE,
        "Seconds since the oldest unfinished message was sequenced; 0 if none waits.",
        GROUP,
    ),
    ExportedMetric("ems_group_paused", GAUGE, "1 while the group is paused.", GROUP),
    ExportedMetric(
        "ems_inbox_messages", GAUGE, "Messages that are due and have no offset yet.", TOPIC
    ),
    ExportedMetric(
        "ems_inbox_oldest_seconds",
        GAUGE,
        "Seconds that the oldest message has been due without an offset; 0 if none waits.",
        TOPIC,
    ),
    ExportedMetric(
        "ems_next_delayed_seconds",
        GAUGE,
        "Seconds until the next delayed message is due; absent without one.",
        TOPIC,
    ),
    ExportedMetric(
        "ems_prepared_messages",
        GAUGE,
        "Prepared messages that are not done, by state: PREPARED, COMMITTED, UNSENT or MANUAL;"
        " 10,000 means at least so many.",
        ("state",),
    ),
    ExportedMetric(
        "ems_prepared_oldest_seconds",
        GAUGE,
        "Seconds since the oldest of those counted was prepared; 0 if there is none.",
        ("state",),
    ),
    ExportedMetric("ems_step_age_seconds", GAUGE, "Seconds since the step ran last.", ("step",)),
    ExportedMetric(
        "ems_topic_info", GAUGE, "1, with the access of the topic.", ("topic", "access")
    ),
    ExportedMetric("ems_server_info", GAUGE, "1, with what the server is.", ("vendor", "version")),
    ExportedMetric(
        "ems_replication_ok",
        GAUGE,
        "1, or 0 if a failover of the server may lose commits; absent on SQLite.",
    ),
    ExportedMetric(
        "ems_history_list_length",
        GAUGE,
        "Changes that InnoDB keeps for old snapshots; absent without the privilege PROCESS.",
    ),
    ExportedMetric(
        "ems_oldest_transaction_seconds",
        GAUGE,
        "Age of the oldest open transaction of the server; absent without the privilege PROCESS.",
    ),
)

# What this process has done since it started.
PROCESS: dict[str, ExportedMetric] = _named(
    ExportedMetric(
        "ems_sent_messages_total",
        COUNTER,
        "Messages given to send(): sent, duplicate, error, or unknown if the reply was lost. And"
        " prepared messages that were committed: sent.",
        ("topic", "outcome"),
    ),
    ExportedMetric(
        "ems_prepares_total",
        COUNTER,
        "Calls of prepare(): prepared, repeated, or error.",
        ("topic", "outcome"),
    ),
    ExportedMetric(
        "ems_send_seconds",
        HISTOGRAM,
        "Seconds of a call of send() or send_many().",
        TOPIC,
        FROM_HALF_A_MILLISECOND,
    ),
    ExportedMetric(
        "ems_handled_messages_total",
        COUNTER,
        "Messages by what became of them: done, failed (comes back), dead, missing, passed"
        " (without a tag of the group) or released (given back).",
        ("topic", "group", "outcome"),
    ),
    ExportedMetric(
        "ems_handler_seconds", HISTOGRAM, "Seconds of a call of the handler.", GROUP, OF_A_HANDLER
    ),
    ExportedMetric(
        "ems_delivery_seconds",
        HISTOGRAM,
        "Seconds from send() to the first call of the handler, by the database's clock.",
        GROUP,
        OF_A_DELIVERY,
    ),
    ExportedMetric(
        "ems_claims_total", COUNTER, "Claims: new, retry or replay.", ("topic", "group", "kind")
    ),
    ExportedMetric(
        "ems_claim_seconds",
        HISTOGRAM,
        "Seconds of a claim that got something.",
        ("topic", "group", "kind"),
        FROM_HALF_A_MILLISECOND,
    ),
    ExportedMetric(
        "ems_settle_seconds",
        HISTOGRAM,
        "Seconds in which an outcome was written.",
        ("topic", "group", "kind"),
        FROM_HALF_A_MILLISECOND,
    ),
    ExportedMetric(
        "ems_workers", GAUGE, "Messages or batches the process may handle at once.", GROUP
    ),
    ExportedMetric("ems_workers_busy", GAUGE, "Of these, those it handles now.", GROUP),
    ExportedMetric("ems_sequencer_messages_total", COUNTER, "Messages that it gave an offset."),
    ExportedMetric(
        "ems_sequencer_pass_seconds",
        HISTOGRAM,
        "Seconds of a pass of the sequencer that found something.",
        (),
        OF_A_PASS,
    ),
    ExportedMetric(
        "ems_leases_lost_total", COUNTER, "Outcomes not recorded: the lease had ended.", GROUP
    ),
    ExportedMetric(
        "ems_transactions_repeated_total",
        COUNTER,
        "Work of EMS that it repeated: connection, lock or interrupted.",
        ("reason",),
    ),
    ExportedMetric(
        "ems_log_rewound_total",
        COUNTER,
        "Times that a log was found older than this process had seen it; a group if it broadcasts.",
        ("topic", "group", "partition"),
    ),
    ExportedMetric(
        "ems_checks_total",
        COUNTER,
        "Checks of prepared messages: commit, rollback, unknown or error.",
        ("checker", "answer"),
    ),
    ExportedMetric(
        "ems_check_seconds",
        HISTOGRAM,
        "Seconds until a checker answered.",
        ("checker",),
        OF_A_HANDLER,
    ),
    ExportedMetric("ems_wakeups_total", COUNTER, "Wake-ups that came through Redis."),
    ExportedMetric(
        "ems_consumer_info", GAUGE, "1, with who the process is.", ("client_id", "version")
    ),
)

ALL = {**DATABASE, **PROCESS}
