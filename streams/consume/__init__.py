"""Consumes messages: which handler takes what, the claim, the call, and its outcome."""
