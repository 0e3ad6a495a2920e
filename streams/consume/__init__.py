"""Consuming: who handles what, the claim, the call, and its outcome."""
