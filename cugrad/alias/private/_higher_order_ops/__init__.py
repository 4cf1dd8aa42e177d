"""torch._higher_order_ops: functions of functions that packages import; each has a file."""
