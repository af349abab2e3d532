"""A child as the build has them, which has a child of its own, as a compiler is one."""

import subprocess
import sys
import time

from hatch_precompile.processes import connect_to_parent, tell

connect_to_parent()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]])
tell("started")
time.sleep(60)
