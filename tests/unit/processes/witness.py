"""A child that tells what it was given."""

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

from hatch_precompile.processes import connect_to_parent, tell

inherited = [each for each in Path("/proc/self/fd").iterdir() if each.exists()]
connect_to_parent()
what, *rest = sys.argv[1:]
if what == "tell":
    given = {
        "arguments": rest,
        "environment": {key: value for key, value in os.environ.items() if key != "_"},
        "path": sys.path,
        "directory": str(Path.cwd()),
        "name": __name__,
        "input": sys.stdin.read(),
        "leads": os.getpgrp() == os.getsid(0) == os.getpid(),
        "open": len(inherited),
        "threads": threading.active_count(),
        "ignored": [number.name for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN],
    }
    tell(json.dumps(given))
    tell(json.dumps({"preloaded": "wave" in sys.modules, "random": random.random()}))
elif what == "print":
    print("to the one")
    print("to the other", file=sys.stderr)
elif what == "raise":
    raise KeyError("a word")
elif what == "kill":
    os.kill(os.getpid(), signal.SIGSEGV)
elif what == "sleep":
    threading.Event().wait()
sys.exit(int(rest[0]) if rest else 0)
