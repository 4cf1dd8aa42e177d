"""`record`: what a process failed of, for who has started it."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["record"]


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """The function, which notes an exception that ends it in the file TORCHELASTIC_ERROR_FILE.

    `distributed.run` then says what it was, and of which rank. `error_handler` is None.

    >>> from cugrad.distributed.elastic.multiprocessing.errors import record
    >>> @record
    ... def main():
    ...     return "done"
    >>> main()
    'done'
    """
    if error_handler is not None:
        raise NotImplementedError("record: got error_handler=, want None")

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code == 0:
                return None
            raise
        except Exception as error:
            if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
                more = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
                message = {"message": f"{type(error).__name__}: {error}", "extraInfo": more}
                with open(path, "w") as file:
                    json.dump({"message": message}, file)
            raise

    return wrapper
