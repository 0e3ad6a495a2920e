"""Tests EMS, with a set-up that starts its own servers (see dev.py)."""
