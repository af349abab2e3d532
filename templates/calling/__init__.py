"""What happens at a call: functions with a prologue, the entry that serves, and what a miss does."""

WHOLE = True
