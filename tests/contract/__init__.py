"""Tests of what holds for every act, on every face."""
