"""torch.overrides: classes and modes that take the calls of public functions.

A subclass of Tensor has a `__torch_function__`, which gets each call of a public function with one
of its instances. Any other class may have one too. A `TorchFunctionMode` is a context that gets all
calls. `cugrad.runtime.dispatching` is how calls get there. `surface.py` says which functions these
are, `modes.py` has the contexts, `asking.py` what functions of programs call. Begin with
`surface.py`. Other rooms import nothing from here.
"""

from ..runtime.absent import explain as _explain
from .asking import *
from .modes import *
from .surface import *
from .surface import _switch_on as _switch_on

_explain(__name__)
