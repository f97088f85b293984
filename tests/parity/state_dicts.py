#!/usr/bin/python3
# Compares the stored form of imported nets with the state_dict of their modules: names, shapes and
# numbers, in the file of the import and in the snapshot of a training with almost no change.
# load_state_dict(strict=True) must accept both. Reason: these files bring a trained net back into
# PyTorch.
#   state_dicts.py REPRISE
# Run it with build/parity-venv/bin/python. It must not use Reprise's code.
import json
import os
import subprocess
import sys
import tempfile

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import nn


class Mixed(nn.Module):
  """Parameters that have another form or name in a graph."""

  def __init__(self):
    super().__init__()
    self.patches, self.norm = nn.Conv2d(3, 8, 4, stride=4, bias=False), nn.BatchNorm2d(8)
    self.gamma, self.places = nn.Parameter(torch.randn(8, 1, 1)), nn.Parameter(torch.randn(1, 8, 4, 4))
    self.up, self.down = nn.ConvTranspose2d(8, 6, 2, stride=2), nn.Conv2d(6, 8, 2, stride=2)
    self.group, self.signal, self.slopes = nn.GroupNorm(2, 6), nn.Conv1d(8, 8, 3, padding=1), nn.PReLU(8)
    self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 17, 8))
    self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
    self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    self.query, self.distances = nn.Linear(8, 8, bias=False), nn.Parameter(torch.randn(2, 17, 17))
    self.strength, self.out = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.randn(8, 5))

  def forward(self, x):
    x = self.slopes(self.norm(self.patches(x)) * self.gamma + self.places)
    x = self.down(self.group(self.up(x))).flatten(2)
    x = (x + self.signal(x)).transpose(1, 2)
    x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
    x = self.block(x + self.attention(x, x, x, need_weights=False)[0])
    q = self.query(x).view(x.shape[0], 17, 2, 4).transpose(1, 2)
    weights = (q @ q.transpose(-1, -2) * 0.5 + self.distances).softmax(-1)
    x = x + self.strength * (weights @ q).transpose(1, 2).reshape(x.shape[0], 17, 8)
    return x[:, 0] @ self.out


def run(*command):
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode != 0:
    sys.exit("state_dicts: " + " ".join(command) + ": " + done.stderr.strip())


def compare(name, stored, module):
  """Exits if a stored tensor differs from the module's; running statistics and their counts may,
  because a step changes them."""
  own = module.state_dict()
  for key, tensor in stored.items():
    if key not in own or tensor.shape != own[key].shape:
      sys.exit(f"state_dicts: {name}: {key} {list(tensor.shape)} is not the module's")
    moves = key.endswith(("running_mean", "running_var", "num_batches_tracked"))
    if not moves and not torch.allclose(tensor, own[key], rtol=0, atol=1e-20):
      sys.exit(f"state_dicts: {name}: {key} holds other numbers")


def main():
  reprise = os.path.abspath(sys.argv[1])
  torch.manual_seed(1)
  torch.set_num_threads(1)
  nets = {
      "mixed": (Mixed(), 16),
      "squeezenet1_1": (torchvision.models.squeezenet1_1(), 64),
      "mobilenet_v3_small": (torchvision.models.mobilenet_v3_small(), 64),
      "vision_transformer": (torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 64), 32),
  }
  with tempfile.TemporaryDirectory() as folder:
    at = lambda name: os.path.join(folder, name)
    for name, (net, side) in nets.items():
      net.eval()
      x = torch.randn(2, 3, side, side)
      torch.export.save(torch.export.export(net, (x,)), at("net.pt2"))
      save_file({"x": x, "outputs": net(x).detach().contiguous()}, at("outputs.safetensors"))
      run(reprise, "import", at("net.pt2"), "-o", at("net.json"), "--check", at("outputs.safetensors"))
      compare(name, load_file(at("net.safetensors")), net)
      with open(at("net.json"), encoding="utf-8") as file:
        recipe = json.load(file)
      recipe.update({"steps": 1, "batch": 2, "optimizer": {"name": "sgd", "lr": 1e-30}})
      with open(at("still.json"), "w", encoding="utf-8") as file:
        json.dump(recipe, file)
      run(reprise, "plan", at("still.json"), "--binary", "-o", at("plan"))
      run(reprise, "train", at("plan/plan.bin"), "--quiet", "--overwrite", "--save", at("snapshot"))
      snapshot = load_file(at("snapshot/model.safetensors"))
      compare(name, snapshot, net)
      net.load_state_dict(snapshot, strict=True)
      print(f"{name}: {len(snapshot)} tensors")


if __name__ == "__main__":
  main()
