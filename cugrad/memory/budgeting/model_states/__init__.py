"""Weights, gradients and optimizer states within a budget: what there is, and where it goes.

`states` is the part of a budget that was given a model; begin there. It takes what `chooser` has
chosen of the places that `choosing` forecasts; `inventory` counts what there is, by what an
optimizer keeps, which `rehearsing` knows, `adding` sees whether passes begin with gradients,
`between` has room for what a loop does between passes, and `remembered` has a choice for a model's
next budget.
"""
