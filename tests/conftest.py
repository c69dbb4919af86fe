import os
import signal

import torch
from hypothesis import settings

# The same examples in every run, and no deadline: timings on shared machines are noise.
settings.register_profile("dcgraph", derandomize=True, deadline=None)
settings.load_profile("dcgraph")

# Without a GPU the kernels run in Triton's interpreter. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Jobs in the background may be made to ignore signals to stop, which some tests are about.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):  # not on Windows
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
