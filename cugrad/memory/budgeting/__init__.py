"""A limit for a step: what is kept, moved or made again is planned from a step that was measured.

`context` has `budget`; begin there, then read `planning`, which knows no tensor and no device.
`step_recorder` and `measuring` see a step, `known_steps` has what came of plans, `limiting` keeps a
step within its limit, `placing` does with each value what the plan says, and `report` prints it.
`model_states` places a model's weights, gradients and optimizer states by the same plans, and
`of_model` is what a budget tells of that. `rates` has what links and disks do in a second. Only
`memory` imports from here.
"""
