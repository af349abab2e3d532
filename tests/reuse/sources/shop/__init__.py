"""A package of which an earlier wheel knows some functions as they still are."""
