"""The audit: every offset that a group has passed is covered, and every message accounted for."""
