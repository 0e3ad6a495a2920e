"""Ends deliveries: settles, releases and expires them, and writes retries and dead letters."""
