"""What an entry depends on besides its guards: the table of the kinds, and the records of one entry."""
