"""torch.func: transforms of functions, which compose and nest.

`transforms.py` has grad, vjp and jvp, `batching.py` vmap, `jacobians.py` what is made of both:
begin with `transforms.py`. `trees.py` takes nested arguments apart. `fusing.py` has
`cugrad.fuse`. Rooms above import the public functions from here.
"""

from typing import TYPE_CHECKING, Any

from ..runtime.lazy import lazily
from .batching import vmap
from .jacobians import hessian, jacfwd, jacrev
from .transforms import grad, grad_and_value, jvp, linearize, vjp

__all__ = [
    "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp", "vmap",
]  # fmt: skip

if TYPE_CHECKING:  # what PyTorch has here too, and is made of modules

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__ = lazily(
        __name__,
        {"nn.stateless": "functional_call replace_all_batch_norm_modules_ stack_module_state"},
        __name__.rpartition(".")[0],
    )
