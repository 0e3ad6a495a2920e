"""Holds the parts of the admin pages: columns, filters, lists, search and the journal."""
