"""Two workers whose dense parameters nothing keeps equal."""

import libra_ps as libra
import torch

libra.init(mode="sync")
model = torch.nn.Sequential(libra.nn.Embedding(10, 2), torch.nn.Linear(2, 1))
optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
model(torch.tensor([1])).sum().backward()
