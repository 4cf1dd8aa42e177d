"""torch.fx.passes.utils: what passes have in common.

Begin with `matcher_utils.py`, which finds one graph in another: it is all there is.
"""

from ....runtime.absent import explain as _explain

_explain(__name__)
