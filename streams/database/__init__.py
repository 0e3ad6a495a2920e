"""Works with the database: transactions, retries after transient errors, the raw statements."""
