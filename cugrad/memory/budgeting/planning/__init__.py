"""Plans where saved tensors wait, from what was measured of a step; knows no tensor, no device.

`step.py` is what a plan is made for: begin there. `forecast.py` says what a plan costs, `search.py`
and `greedy.py` look for a better one. `budgeting` imports from here, and from here only.
"""

from .forecast import Forecast, Forecaster, at_once
from .greedy import Plan, plan
from .holders import holders
from .step import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step, StepEvent, StepValue, moved

__all__ = [
    "COMPRESS", "DISK", "KEEP", "OFFLOAD", "RECOMPUTE", "Forecast", "Forecaster", "Plan", "Step",
    "StepEvent", "StepValue", "at_once", "holders", "moved", "plan",
]  # fmt: skip
