"""Prepares messages, asks what became of their work, and sends or drops them."""
