"""torch._higher_order_ops: functions of functions that packages import.

Each has a file of its name, as in PyTorch, from which it is imported. There is one yet: begin with
`associative_scan.py`.
"""
