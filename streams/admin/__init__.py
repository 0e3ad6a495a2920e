"""The admin pages, one noun a file."""

from streams.admin import delivery, message, topic

__all__ = ["delivery", "message", "topic"]
