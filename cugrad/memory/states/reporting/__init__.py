"""What a step with states elsewhere took, and what it takes at least.

`report` has the clock that takes times of steps, and the page that is printed; begin there.
`bound` has the least that it takes, `timeline` what was done when, which it draws.
Beside `memory.budgeting` only `states.context` imports from here.
"""
