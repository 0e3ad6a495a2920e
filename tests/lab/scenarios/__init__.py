"""Plays scenarios: producers, consumers and a disturbance, then the audit and a table.

``make scenario NAME=kill ARGS=--full``; without --full a small one, as CI runs it.
"""
