"""Plans where saved tensors wait, from what was measured of a step; knows no tensor, no device."""

from .forecast import Forecast, Forecaster
from .greedy import Plan, plan
from .holders import holders
from .step import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Event, Step, Value

__all__ = [
    "COMPRESS", "DISK", "KEEP", "OFFLOAD", "RECOMPUTE", "Event", "Forecast", "Forecaster", "Plan",
    "Step", "Value", "holders", "plan",
]  # fmt: skip
