"""Small programs of many kinds. Each module says in PROGRAMS which of its definitions are entrypoints."""
