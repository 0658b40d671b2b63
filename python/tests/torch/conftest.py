"""Tests with torch."""

import torch

# Small tensors: a second thread would only wait for the first.
torch.set_num_threads(1)
