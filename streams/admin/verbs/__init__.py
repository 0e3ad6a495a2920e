"""What the admin does to rows: previewed, confirmed, carried out, and noted in its log."""
