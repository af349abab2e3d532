"""A child of a build that sends events, and whose author prints as he likes."""

import os
import subprocess
import sys
import warnings

from hatch_precompile.events import Event, send
from hatch_precompile.processes import connect_to_parent


def event(number):
    return Event(step="sample", text="half a line: ½ \udc80", sample=number, samples=7)


connect_to_parent()
sys.stdout.write("  50%|#####     ")  # a progress bar, without its end
send(event(1))
sys.stdout.write("\r100%|##########")
sys.stdout.flush()
send(event(2))
os.write(1, b"\n")
print('::{"step": "sample"}')
print('{"step": "sample"}')
subprocess.run(
    [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"], close_fds=False, check=False
)
warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, where there are threads
if os.fork() == 0:
    try:
        send(event(6))
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
os.close(1)
os.close(2)
send(event(3))
