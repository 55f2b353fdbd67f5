#!/usr/bin/env python3
"""Steps of training a diffusion model with eager PyTorch, and one of denoising, compared with the CPU: a U-Net with
time embedding, group norm, attention."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

import eager


class Block(nn.Module):
    def __init__(self, into, out, wide=32):
        super().__init__()
        self.a, self.b = nn.Conv2d(into, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.norm, self.time = nn.GroupNorm(4, out), nn.Linear(wide, out)
        self.past = nn.Conv2d(into, out, 1)

    def forward(self, x, time):
        h = F.silu(self.norm(self.a(x))) + self.time(time)[:, :, None, None]
        return F.silu(self.b(h)) + self.past(x)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = Block(1, 16), Block(16, 32), Block(32, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.last, self.out = Block(32, 16), nn.Conv2d(16, 1, 1)

    def forward(self, x, when):
        rates = torch.exp(torch.arange(16, device=x.device) * -0.5)
        time = torch.cat([torch.sin(when[:, None] * rates), torch.cos(when[:, None] * rates)], 1)
        one = self.down1(x, time)
        two = self.middle(self.down2(F.avg_pool2d(one, 2), time), time)
        flat = two.flatten(2).transpose(1, 2)
        two = two + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).view_as(two)
        return self.out(self.last(torch.cat([self.up(two), one], 1), time))


def prepare(device):
    generator = eager.seeded(device)
    model = Unet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    image, noise = (torch.randn(4, 1, 16, 16, generator=generator).to(device) for _ in range(2))
    when = torch.tensor([0.1, 0.3, 0.6, 0.9]).to(device)
    keep = torch.cos(when * torch.pi / 2)[:, None, None, None]
    seen = keep * image + (1 - keep**2).sqrt() * noise

    def step(_):
        optimizer.zero_grad()
        loss = F.mse_loss(model(seen, when), noise)
        loss.backward()
        optimizer.step()
        return loss.item()

    def rest():
        with torch.inference_mode():
            return {"denoised": (seen - (1 - keep**2).sqrt() * model(seen, when)) / keep.clamp(min=0.1)}

    return step, rest


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))
