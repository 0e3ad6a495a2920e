"""Producing: from send() to the row in the inbox, and cancelling it."""
