"""Checks what comes from outside while it is read: wheels, bundles, records, the answers of workers.

Each is read here, within bounds, and leaves as a structure in which every value has its type and its range,
every name of a file stays within its folder, and every number leads to something. docs/security.md says who
trusts whom.
"""
