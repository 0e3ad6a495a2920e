"""Produces messages: from send() to the row in the inbox, and cancelling it."""
