"""Side-by-side measurements, run by hand: `python -m benchmarks` or `make bench`."""

import os

# Both sides of every comparison get one thread; read by a BLAS when it is loaded, so set here,
# before any module of the package is.
os.environ["OMP_NUM_THREADS"] = "1"
