"""Whether derivatives are right. The faces are `autograd.gradcheck` and `autograd.functional`.

`numerical` compares derivatives with finite differences: begin there. `edge_cases` checks zero and
absent gradients and batches. `functional` has what the functions of `autograd.functional` share.
Only the two faces import from here.
"""
