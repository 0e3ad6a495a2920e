"""Holds what the threads of a consumer process share."""
