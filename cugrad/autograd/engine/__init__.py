"""Backward: gradients on their way through the graph.

`backward_pass` is the loop; begin there. `differentiate` has `backward` and `grad`, `reach` says
where gradients can come to, `leaf_schedule` when leaves are visited, `accumulate` how `.grad`
grows, `hooks` what users are shown, `undefined` what happens where no gradient comes. Rooms above
import `backward_pass`, for the pass that runs, and `differentiate`.
"""
