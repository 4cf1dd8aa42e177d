"""Why an action on a kind of tensor does not do what PyTorch does: known differences."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """Regular expressions of the subject, the action and the mode, each to match in full."""

    subject: str
    action: str
    mode: str
    why: str


UNRECORDED = "inference|enabled|no_grad"
CANNOT_FOLLOW = r".*(one_of_many|no_grad_|inference_|enabled_|function_).*"

REASONS = [
    Reason(
        ".*", "detach_", "inference|enabled",
        "detach_ detaches, or refuses to; in PyTorch it does nothing in inference mode",
    ),
    Reason(
        "inference.*|later_view_of_inference", "detach_", ".*",
        "detach_ detaches inference tensors too",
    ),
    Reason(
        "retaining", "detach_", ".*",
        "what detach_ made a leaf retains nothing",
    ),
    Reason(
        ".*", "requires_grad_ off", ".*",
        "requires_grad_(False) of a view made under no_grad turns it off; PyTorch keeps the base's",
    ),
    Reason(
        "inference_leaf", ".*", ".*",
        "an inference tensor that requires grad gets one, or raises; PyTorch's ops forget it",
    ),
    Reason(
        "inference|inference_computed|enabled", r"requires_grad[_=]", "inference|enabled",
        "the same, of a tensor that becomes one",
    ),
    Reason(
        ".*", "deepcopy|pickle|parameter", "inference|enabled",
        "the same, of a copy that becomes one",
    ),
    Reason(
        ".*", "function", "enabled",
        "custom Functions are not recorded in inference mode, as nothing is; PyTorch's are",
    ),
    Reason(
        "inference.*|enabled|later_view.*|many_of_inference", "(detach|data) add_", ".*",
        "what shares the memory of an inference tensor may not be changed either",
    ),
    Reason(
        CANNOT_FOLLOW, "detach add_|data add_|increment_version", ".*",
        "a change that no view takes part in is noticed in what was saved, not in other views",
    ),
    Reason(
        CANNOT_FOLLOW, "unsqueeze_", UNRECORDED,
        "a change of shape in place moves no element: other views are as good as before",
    ),
    Reason(
        "inference.*|enabled|later_view.*|many_of_inference", "stack", ".*",
        "stack makes no view of inference tensors",
    ),
    Reason(
        "expanded", "zero_", ".*",
        "a write to an expanded tensor is an error always",
    ),
]  # fmt: skip
