from names import Encoder as FromPackage

from .public import Other as Again
from .public import Twice
