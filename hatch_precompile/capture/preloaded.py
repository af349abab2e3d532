"""What every capture imports, for the process that they are forked from."""

import hatch_precompile.capture.run_samples
import hatch_precompile.tracing.preloaded  # noqa: F401
