"""Holds what stands on EMS and is installed as an app of its own."""
