"""What a step with states elsewhere took, and what it takes at least.

`report` has the clock that takes times of steps, and the page that is printed; begin there.
`timeline` has what was done when, and draws it. Only `states.context` imports from here.
"""
