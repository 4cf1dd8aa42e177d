"""Random programs that find what is wrong in combinations, and make it short.

Begin with `text.py`, what a program is. `whole.py` draws one from the sorts of statements in
`statements.py`, `functions.py` and `passes.py`, with the lines of `table.py`; `running.py` runs it
and says what differs; `judging.py` does so beside PyTorch, and knows by rules which differences
stand on docs/torch-compatibility.md (`accepted_differences.txt` has those that a text tells,
`rounding.py` those of narrow dtypes); `campaign.py` adds the contexts of `contexts.py`
and `elsewhere.py`, which places weights, gradients and states;
`shrinking.py` makes short what they find. `corpus` keeps what was found, as files that run first.
"""
