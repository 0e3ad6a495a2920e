"""Keeps the tables of each release as a dump, and migrates them to those of today."""
