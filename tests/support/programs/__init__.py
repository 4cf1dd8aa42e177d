"""Random programs that find what is wrong in combinations, and make it short.

Begin with `text.py`, what a program is. `whole.py` draws one from the sorts of statements in
`statements.py`, `functions.py` and `passes.py`, with the lines of `table.py`; `running.py` runs it
and says what differs; `campaign.py` does so beside PyTorch and in the contexts of `contexts.py`;
`shrinking.py` makes short what it finds. `corpus` keeps what was found, as files that run first.
"""
