"""The proxy itself: the tests that use it rely on this."""

import pytest
from django.db import OperationalError, connection, transaction

from tests.hostapp.models import Order

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]


def test_a_statement_whose_reply_is_lost_is_executed_once(proxied):
    proxied.lose_reply_to(b"INSERT INTO `hostapp_order`")
    with pytest.raises(OperationalError, match="2013"):
        Order.objects.create(number="lost")
    connection.close()
    Order.objects.create(number="told")
    assert set(Order.objects.values_list("number", flat=True)) == {"lost", "told"}
    assert proxied.fired == [b"INSERT INTO `hostapp_order`"]


def test_a_commit_whose_reply_is_lost_is_a_commit(proxied):
    proxied.lose_reply_to(b"COMMIT")
    with pytest.raises(OperationalError, match="2013"), transaction.atomic():
        Order.objects.create(number="lost")
    connection.close()
    assert Order.objects.count() == 1


def test_what_is_cut_off_never_happened(proxied):
    proxied.cut_before(b"COMMIT")
    with pytest.raises(OperationalError), transaction.atomic():
        Order.objects.create(number="cut")
    connection.close()
    assert not Order.objects.exists()


def test_a_frozen_connection_answers_nothing_and_others_do(proxied, in_thread):
    proxied.freeze_at(b"COMMIT")

    def write():
        with transaction.atomic():
            Order.objects.create(number="frozen")

    writing = in_thread(write)
    proxied.wait_until_fired()
    with pytest.raises(TimeoutError):
        writing.result(0.3)
    assert not Order.objects.exists()
    proxied.kill_connections()
    with pytest.raises(OperationalError):
        writing.result(30)


def test_connections_can_be_killed_at_any_time(proxied):
    assert not Order.objects.exists()
    proxied.kill_connections()
    with pytest.raises(OperationalError):
        Order.objects.count()
    connection.close()
    assert not Order.objects.exists()


def test_child_processes_connect_through_it_too(proxied, spawn):
    proxied.lose_reply_to(b"INSERT INTO `hostapp_order`")
    child = spawn("""
from tests.hostapp.models import Order
from django.db import OperationalError
try:
    Order.objects.create(number="child")
except OperationalError as error:
    print("lost", error.args[0])
""")
    child.expect("lost 2013")
    proxied.wait_until_fired()
    assert Order.objects.get().number == "child"


@pytest.mark.parametrize("proxied", ["other"], indirect=True)
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_another_alias_can_be_proxied(proxied):
    proxied.cut_before(b"INSERT")
    with pytest.raises(OperationalError):
        Order.objects.using("other").create(number="1")
    Order.objects.create(number="1")
