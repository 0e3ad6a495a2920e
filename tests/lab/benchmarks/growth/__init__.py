"""What units of work cost in a small place and in a large one: rows read, and statements.

Counted, never timed: so a growth fails on any machine, and nothing else does.
"""
