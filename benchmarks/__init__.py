"""Benchmarks that measure two implementations in turn: `python -m benchmarks` or `make bench`."""

import os

# Both sides of every comparison get one thread. A BLAS reads this when it is loaded, so it is set
# before any module of the package is imported.
os.environ["OMP_NUM_THREADS"] = "1"
