"""Publishes messages to a broker by kombu, as the handler of a consumer group (extra ``relay``)."""
