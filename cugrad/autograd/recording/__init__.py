"""Ops on Tensors: how they run, and the nodes that they leave.

`record` runs any op in any circumstance (its operands in `operands`); `fast` compiles rows for the
common case, in place too, of what `texts` writes, and docs/fast-path.md shows the text; `recorded`
has all ops by name. `node` and `op_node` are the graph, `saved` what nodes keep, `views`, `inplace`
and `mutation` what happens where memory is shared or changed. Begin with `record.execute`. Rooms
above import `record` to run ops, and `node` and `views` to ask about the graph.
"""
