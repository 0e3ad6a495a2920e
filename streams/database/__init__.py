"""How EMS works with the database: transactions, errors that pass, and the raw statements."""
