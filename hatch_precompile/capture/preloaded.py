"""What every capture imports, for the process that they are forked from."""

import hatch_precompile.capture.session
import hatch_precompile.tracing.preloaded  # noqa: F401
