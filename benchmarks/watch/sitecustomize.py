"""Record the start-up of every job: Python runs this file first if its folder is on PYTHONPATH.

At its end, a job of the workflow appends one line of JSON to the file named by JOB_TIMES: the times
of its process, and the seconds of start-up, that is of starting the interpreter and of all imports.
Processes that are not jobs write nothing.
"""

import atexit
import builtins
import json
import os
import sys
import time

_import = builtins.__import__
_importing = 0.0  # seconds in imports so far
_inside = False  # an import within an import is part of the outer one


def _timed_import(*args, **kwargs):
    global _importing, _inside
    if _inside:
        return _import(*args, **kwargs)
    _inside, began = True, time.perf_counter()
    try:
        return _import(*args, **kwargs)
    finally:
        _inside = False
        _importing += time.perf_counter() - began


def _record(watched_since: float) -> None:
    job = getattr(sys.modules["__main__"], "snakemake", None)
    if not hasattr(job, "rule"):
        return
    ended, importing = time.time(), _importing
    import psutil

    began = psutil.Process().create_time()
    record = {
        "log": job.log[0],
        "threads": job.threads,
        "began": began,
        "ended": ended,
        "start_up": watched_since - began + importing,
    }
    with open(os.environ["JOB_TIMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


if "JOB_TIMES" in os.environ:
    builtins.__import__ = _timed_import
    atexit.register(_record, time.time())
