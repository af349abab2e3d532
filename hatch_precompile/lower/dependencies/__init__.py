"""What an entry depends on besides its guards: the table of all, and those of one entry."""
