"""torch.multiprocessing.reductions: how tensors are sent to other processes; the rest refuses."""

from ...multiprocessing.sending import get_sharing_strategy as get_sharing_strategy
from ...runtime.absent import INTERNAL
from ..refusals import refuse_the_rest

refuse_the_rest(__name__, "multiprocessing.reductions", INTERNAL)
