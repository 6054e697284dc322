"""One thread per test process: pytest-xdist runs two of them on two cores."""

import torch

torch.set_num_threads(1)
