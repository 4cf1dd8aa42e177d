"""torch.fx.passes: what is done with graphs as a whole.

Begin with `shape_prop.py`, which notes shapes; `utils` finds a pattern in a graph.
"""

from ...runtime.absent import explain as _explain

_explain(__name__)
