#!/usr/bin/python3
# Makes tests/golden/optimizers.txt: the results of a few steps of the packages' own optimizers on
# one matrix. They judge the rules of lib/ops/optimizer.h and matrix_update.h by their authors'
# code. In addition to torch it needs
#   pip install --no-deps bitsandbytes apollo-torch lomo-optim
# Run it with build/parity-venv/bin/python. It must not use Reprise's code: parameters, gradients
# and APOLLO's projection are the formulas here.
import os
import sys

import numpy as np
import torch

kSteps = 5
kFile = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "optimizers.txt")


def numbers(count, seed):
  """Returns `count` floats in [-1, 1): a multiplicative hash of the index."""
  place = np.arange(count, dtype=np.uint64)
  word = (place * np.uint64(2654435761) + np.uint64(seed) * np.uint64(40503)) & np.uint64(0xFFFFFFFF)
  word = ((word ^ (word >> np.uint64(15))) * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
  word ^= word >> np.uint64(13)
  return (word.astype(np.float64) / 2147483648.0 - 1.0).astype(np.float32)


def philox(key, high, low):
  """Returns the four words of Philox4x32-10 (Salmon et al. 2011)."""
  mask = 0xFFFFFFFF
  c = [low & mask, low >> 32 & mask, high & mask, high >> 32 & mask]
  k = [key & mask, key >> 32 & mask]
  for _ in range(10):
    p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
    c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
    k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
  return c


def signs(shorter, rank):
  """Returns the projection [shorter, rank] of lib/ops/matrix_update.h for seed 7, stream 3, and
  steps before the first period ends."""
  flat = [1.0 if philox(7, 0xFFFFFFFC << 32, i // 128 | 3 << 40)[i % 128 // 32] >> i % 32 & 1 else -1.0 for i in range(shorter * rank)]
  return torch.tensor(flat, dtype=torch.float32).reshape(shorter, rank) / rank**0.5


def gradient(shape, step):
  return torch.from_numpy(numbers(shape[0] * shape[1], 100 + step)).reshape(shape) * 0.25


def start(shape):
  return torch.nn.Parameter(torch.from_numpy(numbers(shape[0] * shape[1], 1)).reshape(shape).clone())


def steps(shape, make, count=kSteps):
  parameter = start(shape)
  optimizer = make(parameter)
  for step in range(count):
    parameter.grad = gradient(shape, step)
    optimizer.step()
  return parameter, optimizer


def adafactor(shape):
  return steps(shape, lambda p: torch.optim.Adafactor([p], lr=0.05, eps=(1e-30, 1e-3), weight_decay=0.1))[0]


def muon(shape):
  return steps(shape, lambda p: torch.optim.Muon([p], lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, eps=1e-7))[0]


def apollo(shape, mini):
  from apollo_torch import APOLLOAdamW
  from apollo_torch import random_projector
  rank = 1 if mini else 4
  projection = signs(min(shape), rank)

  def ours(self, weights, rank, type, seed):
    return projection.t() if type == "right" else projection

  random_projector.GradientProjector.get_orthogonal_matrix = ours
  group = lambda p: [{"params": [p], "rank": rank, "proj": "random", "scale_type": "tensor" if mini else "channel", "scale": 128 if mini else 1,
                      "update_proj_gap": 200, "proj_type": "std"}]
  return steps(shape, lambda p: APOLLOAdamW(group(p), lr=0.01, eps=1e-6, scale_front=True, disable_nl=False))[0]


def adalomo(shape):
  from lomo_optim import AdaLomo
  torch.Tensor.cuda = lambda self, *_, **__: self  # the package requests a card

  class Net(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.weight = start(shape)

  net = Net()
  optimizer = AdaLomo(net, lr=0.05, weight_decay=0.1)
  for step in range(kSteps):
    optimizer.fused_backward((net.weight * gradient(shape, step)).sum(), 0.05)
  return net.weight


def adamw8bit(shape, count):
  import bitsandbytes as bnb
  parameter, optimizer = steps(shape, lambda p: bnb.optim.AdamW8bit([p], lr=0.01, weight_decay=0.0), count)
  state = optimizer.state[parameter]
  maps = {"map1": state["qmap1"], "map2": state["qmap2"]}
  return parameter, {"codes1": state["state1"], "codes2": state["state2"], "largest1": state["absmax1"], "largest2": state["absmax2"], **maps}


def line(name, values):
  flat = values.detach().flatten()
  if flat.dtype == torch.uint8:
    return name + " " + bytes(flat.tolist()).hex()
  return name + " " + " ".join(float(v).hex() for v in flat.tolist())


def main():
  torch.manual_seed(0)
  lines = []
  for tag, shape in {"wide": (12, 30), "tall": (30, 12)}.items():
    lines.append(line("adafactor." + tag, adafactor(shape)))
    lines.append(line("adalomo." + tag, adalomo(shape)))
    lines.append(line("apollo." + tag, apollo(shape, False)))
    lines.append(line("apollo_mini." + tag, apollo(shape, True)))
    lines.append(line("muon." + tag, muon(shape)))
  for count in (1, kSteps):
    parameter, state = adamw8bit((64, 70), count)
    lines.append(line(f"adamw8bit.{count}.parameters", parameter[:4]))
    lines += [line(f"adamw8bit.{count}.{name}", values) for name, values in state.items()]
  with open(sys.argv[1] if len(sys.argv) > 1 else kFile, "w") as out:
    out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
  main()
