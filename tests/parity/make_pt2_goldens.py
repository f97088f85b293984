#!/usr/bin/python3
# Makes tests/golden/pt2: nets as torch.export.save writes them. They judge tools/plan/onnx by
# torch's own files. Needs torch 2.8 or later; run it with build/parity-venv/bin/python. The small
# ResNet has the weights of tests/golden/onnx/resnet.safetensors. It must not use Reprise's code.
import os
import sys

import torch
import torch.nn.functional as F
from make_onnx_goldens import ResNet
from safetensors.torch import load_file
from torch import nn
from torch.export import Dim, export, save

kGoldens = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")


class Many(nn.Module):
  """A net with one of nearly every op that has a translation; its outputs have no meaning."""

  def __init__(self):
    super().__init__()
    self.conv = nn.Conv2d(3, 8, 3, padding="same", dilation=2)
    self.plain = nn.BatchNorm2d(8, affine=False)
    self.instance = nn.InstanceNorm2d(8, affine=True)
    self.group = nn.GroupNorm(2, 8)
    self.up = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1, groups=2)
    self.first = nn.Linear(16, 16, bias=False)
    self.norm = nn.LayerNorm(16, elementwise_affine=False)
    self.rms = nn.RMSNorm(16)
    self.token = nn.Parameter(torch.randn(1, 1, 16))
    self.words = nn.Embedding(5, 16)
    self.last = nn.Linear(16, 8)

  def images(self, x):
    x = self.plain(self.conv(x))
    x = F.elu(x) + F.leaky_relu(x, 0.2) * F.softplus(x) - F.mish(x) / 2.0
    x = F.glu(torch.cat([self.instance(x), F.silu(self.group(x), inplace=True)], 1), 1)
    x = F.pad(F.adaptive_avg_pool2d(x, (4, 4)), (1, 2, 0, 1))
    a, b = x.chunk(2, 1)
    x = self.up(torch.cat([a.clamp(min=-1), b.clamp(-0.5, 0.5)], 1))
    x = F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)
    x = F.interpolate(F.interpolate(x, size=(8, 8), mode="nearest"), scale_factor=2, mode="bilinear")
    return F.max_pool2d(F.hardsigmoid(x), 3, 4, 1, ceil_mode=True)

  def forward(self, x, ids):
    x = self.images(x).flatten(2).transpose(1, 2)[:, :, :4]
    x = torch.cat([self.token.expand(x.shape[0], -1, -1), torch.cat([x, x, x, x], -1)], 1)
    x = self.rms(self.norm(self.first(x))) + self.words(ids)
    q, k, v = torch.stack([x, x * 2, 1 - x], 0).unbind(0)
    x = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0]
    x = torch.softmax(torch.matmul(x, x.permute(0, 2, 1)), -1) @ x
    x = x.mean(1) + x.amax(1) + x.sum((1,)) + x[:, 0] + torch.arange(16)
    x = x.masked_fill(x < 0, 0.5).view(x.shape[0], 4, 4).reshape(x.shape[0], 16)
    return self.last(F.dropout(F.hardswish(F.hardtanh(torch.square(x).rsqrt())), 0.3) + F.gelu(x, approximate="tanh").pow(2))


class WritesThroughView(nn.Module):

  def forward(self, x):
    y = x.relu()
    y[:, 0].add_(1)
    return y.sum()


def write(folder, name, net, x, training=False, **more):
  program = export(net.train(training), x if isinstance(x, tuple) else (x,), **more)
  for node in program.graph.nodes:  # removes source lines of this machine
    node.meta.pop("stack_trace", None)
  save(program, os.path.join(folder, name))


def main():
  folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(kGoldens, "pt2")
  os.makedirs(folder, exist_ok=True)
  torch.manual_seed(1)
  net = ResNet(4, 10)
  net.load_state_dict(load_file(os.path.join(kGoldens, "onnx", "resnet.safetensors")), strict=False)
  images = torch.randn(2, 3, 16, 16)
  write(folder, "resnet.pt2", net, images, dynamic_shapes=({0: Dim("batch", min=2)},))
  write(folder, "resnet_training.pt2", net, images, training=True)
  write(folder, "resnet_channels_last.pt2", net.to(memory_format=torch.channels_last), images)
  batch = Dim("batch", min=2)
  write(folder, "many.pt2", Many(), (images, torch.randint(0, 5, (2, 26))), dynamic_shapes=({0: batch}, {0: batch}))
  write(folder, "writes_through_view.pt2", WritesThroughView(), images)


if __name__ == "__main__":
  main()
