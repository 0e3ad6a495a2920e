"""Takes a sample of all partitions and groups each minute, and reads the series of them."""
