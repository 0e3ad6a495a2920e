"""What the admin pages are made of: columns, filters, lists, search and the journal."""
