"""Lets Celery and other users of kombu use EMS as their broker: ``broker_url = "ems://"``."""
