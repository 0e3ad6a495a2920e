"""Changes rows from the admin: previewed, confirmed, done, and recorded in its log."""
