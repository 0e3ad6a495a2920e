"""Handlers that fork, and scripts that go on after the command: signals are left as found."""

from __future__ import annotations

import pytest

from streams import Outgoing, send_many
from streams.models import Delivery, State

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
]

FORKING = """
import multiprocessing, threading, warnings
from streams import consumer
from django.core.management import call_command
warnings.simplefilter("ignore")

@consumer("orders", group="mail", threads=1)
def handle(message):
    child = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
    child.start()
    child.terminate()
    child.join(20)
    print("the child's status:", child.exitcode)
    child.kill()

call_command("ems_consume", "--start", "earliest", "--drain", "--batch", "1")
"""


def test_a_handler_that_ends_its_child_ends_it_and_not_the_consumer(spawn):
    send_many([Outgoing("orders", n) for n in range(2)])
    text = spawn(FORKING).succeed()
    assert text.count("the child's status: -15") == 2, text
    assert "Stopping" not in text
    assert not Delivery.objects.exclude(state=State.DONE).exists()


SCRIPT = """
import multiprocessing, os, signal, threading
from streams import consumer
from django.core.management import call_command

def mine(number, frame):
    print("mine was called")

signal.signal(signal.SIGTERM, mine)
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
open_files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0

consumer("orders", group="mail")(print)
call_command("ems_consume", "--start", "earliest", "--drain")

assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
os.kill(os.getpid(), signal.SIGTERM)
print("the script has ended; wakeup fd is its own:", signal.set_wakeup_fd(-1) == writer)
"""


def test_after_the_command_a_script_has_its_signals_back(spawn):
    text = spawn(SCRIPT).succeed()
    assert "mine was called" in text
    assert "wakeup fd is its own: True" in text
