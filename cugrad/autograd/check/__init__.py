"""Whether derivatives are right. The faces are `autograd.gradcheck` and `autograd.functional`.

`numerical` compares derivatives with finite differences, `edge_cases` asks the rest; `functional`
is what the functions of `autograd.functional` share.
"""
