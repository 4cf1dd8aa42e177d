"""The events of a profile: how they are noted, made, averaged, listed and written down.

`recorder.py` notes what begins and ends, `build.py` makes events of that: begin there. `event.py`
and `event_list.py` have PyTorch's classes, `table.py` and `chrome.py` write them. The profiler's
other rooms import them from here.
"""

from __future__ import annotations
