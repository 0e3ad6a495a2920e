"""Audits the tables: every offset that a group has passed is covered, and no message is lost."""
