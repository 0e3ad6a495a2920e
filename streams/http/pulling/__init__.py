"""Hands messages of a group out over HTTP: claims, receipts, outcomes, holds."""
