"""Delivers messages to groups, whoever handles them: claims by turns, opens, calls, closes.

Consumer processes, clients that pull over HTTP, broadcast consumers and ``streams.testing`` stand
on it. It imports the log and what a consumer is (``consume``), and knows none of its users.
"""
