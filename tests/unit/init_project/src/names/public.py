from .layers import *
from .layers import Renamed as Twice
from .layers import Root as Other
