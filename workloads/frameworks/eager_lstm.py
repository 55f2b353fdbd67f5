#!/usr/bin/env python3
"""Trains an LSTM and a GRU (cuDNN's) on sequences of different lengths with eager PyTorch, and compares with the CPU."""
import sys

import torch
from torch import nn
from torch.nn.utils import rnn

import eager


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 32, num_layers=2, batch_first=True)
        self.gru = nn.GRU(32, 16, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        packed = rnn.pack_padded_sequence(x, [12, 10, 9, 7, 5, 3], batch_first=True)
        seen = rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]
        return self.out(self.gru(seen)[0][:, -1])


def prepare(device):
    generator = eager.seeded(device)
    model = Reader().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batches = [(torch.randn(6, 12, 16, generator=generator), torch.randint(0, 5, (6,), generator=generator))]
    return eager.classifier(model, batches, optimizer, device), lambda: eager.weights_of(model)


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))
