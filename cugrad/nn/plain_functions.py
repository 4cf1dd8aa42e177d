"""The functions of torch.nn.functional as layers call them: `functional` adds what errors say."""

from __future__ import annotations

from ..autograd.record import recorded
from ..functions.arranging import channel_shuffle as channel_shuffle
from ..functions.arranging import pixel_shuffle as pixel_shuffle
from ..functions.arranging import pixel_unshuffle as pixel_unshuffle
from ..functions.linalg import matmul as _matmul
from ..functions.mistakes import MISTAKES, explained
from ..functions.padding import pad as pad
from ..linalg.distances import bilinear as bilinear
from ..linalg.distances import pdist as pdist
from ..tensor import Tensor
from .activation_functions import *  # noqa: F403
from .attention_functions import *  # noqa: F403
from .class_losses import *  # noqa: F403
from .conv_functions import *  # noqa: F403
from .dropout_functions import *  # noqa: F403
from .embedding_functions import *  # noqa: F403
from .grid_functions import *  # noqa: F403
from .image_functions import *  # noqa: F403
from .loss_functions import *  # noqa: F403
from .margin_losses import *  # noqa: F403
from .norm_functions import *  # noqa: F403
from .pooling_functions import *  # noqa: F403


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, for weight of shape (out_features, in_features), or one feature."""
    try:
        if weight.ndim == 1:  # one output, which has no dim
            out = _matmul(input, weight)
            return out if bias is None else out + bias
        return recorded.linear(input, weight, bias)
    except MISTAKES as error:
        raise (explained(error) or error) from None
