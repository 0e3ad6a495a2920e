"""The tests that the host has of its own: run by its ``manage.py test``."""
# ruff: noqa: PT009, PT027 - Django's own test runner, as a host without pytest has it

import os
from datetime import timedelta
from unittest import skipUnless

from django.apps import apps
from django.test import TestCase, TransactionTestCase

from shop.monitoring.models import Play
from shop.streams.models import Stream
from streams.testing import advance, drain, sent

ATOMIC = os.environ["HOST_VARIANT"] == "atomic"
LABELS = {
    "streams": "shop.streams",
    "monitoring": "shop.monitoring",
    "ems": "streams",
    "ems_monitoring": "monitoring",
}


class StreamTest(TestCase):
    def test_a_started_stream_reaches_both_groups(self):
        Stream.start("Metropolis")
        result = drain()
        self.assertEqual((result.done, result.failed), (2, 0))
        self.assertEqual(
            set(Play.objects.values_list("group", "film")),
            {("charts", "Metropolis"), ("billing", "Metropolis")},
        )

    def test_a_failed_message_comes_again_in_time(self):
        Stream.start("Shaky")
        self.assertEqual(drain("charts").failed, 1)
        self.assertEqual(drain("charts").done, 0)
        advance(timedelta(minutes=1))
        self.assertEqual(drain("charts").done, 1)
        attempts = Play.objects.order_by("attempt").values_list("attempt", flat=True)
        self.assertEqual(list(attempts), [1, 2])

    def test_a_rejected_message_is_dead(self):
        Stream.start("Free")
        self.assertEqual(drain("billing").dead, 1)

    def test_a_view_sends(self):
        self.client.post("/start/", {"film": "Nosferatu"})
        (message,) = sent("streams", key="Nosferatu")
        self.assertEqual(message.body["film"], "Nosferatu")

    @skipUnless(ATOMIC, "the view is a transaction only with ATOMIC_REQUESTS")
    def test_a_view_that_fails_has_sent_nothing(self):
        with self.assertRaises(PermissionError):
            self.client.post("/start/", {"film": "Nosferatu", "unpaid": "1"})
        self.assertEqual(sent("streams"), [])
        self.assertFalse(Stream.objects.exists())

    def test_each_app_keeps_its_label(self):
        names = {label: apps.get_app_config(label).name for label in LABELS}
        self.assertEqual(names, LABELS)


class FlushedTest(TransactionTestCase):
    """Between these two the tables are emptied: nothing of the first may be remembered."""

    def test_what_is_sent_before_a_flush_is_delivered(self):
        Stream.start("M")
        self.assertEqual(drain("charts").done, 1)

    def test_what_is_sent_after_a_flush_is_delivered(self):
        Stream.start("M")
        self.assertEqual(drain("charts").done, 1)
