"""Bugs put in on purpose, one at a time: each must turn a test red that is named beforehand.

``make mutants`` runs them all; ``python -m tests.lab.mutants NAME…`` some. A mutant that no test
notices is a promise that nobody keeps watch over.
"""
