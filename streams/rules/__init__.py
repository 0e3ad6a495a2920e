"""What a message may be: names, keys, bodies, headers, sizes and partitions.

No Django, and nothing else of EMS: the Spark jobs use these rules on executors, which have neither.
"""
