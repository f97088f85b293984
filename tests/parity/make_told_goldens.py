#!/usr/bin/python3
# Makes tests/golden/told: small new nets whose ONNX files do not state clearly what is trained,
# with PyTorch's list of parameters and buffers and the losses of some steps. They judge
# tools/plan/onnx by the module and not by its file. Run it with build/parity-venv/bin/python. It
# must not use Reprise's code.
import copy
import json
import os
import sys

import onnx
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "told")
kSteps, kRate = 5, 0.1


class Layers(nn.Module):
  """New layers with equal initial values, and biases of zeros."""

  def __init__(self):
    super().__init__()
    self.patches = nn.Conv2d(3, 8, 4, 4)
    self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0), 3, enable_nested_tensor=False)
    self.mixed = nn.Linear(8, 8)
    self.fc = nn.Linear(8, 4)
    for layer in (self.patches, self.mixed, self.fc):
      nn.init.zeros_(layer.bias)

  def forward(self, x):
    return self.fc(self.mixed(self.encoder(self.patches(x).flatten(2).transpose(1, 2))).relu().mean(1))


class Scalars(nn.Module):
  """Single numbers, two tensors of zeros, new norms, and norms without parameters."""

  def __init__(self):
    super().__init__()
    self.conv = nn.Conv2d(3, 8, 3, padding=1)
    self.norm = nn.InstanceNorm2d(8, affine=True)
    self.branch = nn.Conv2d(8, 8, 1)
    self.gamma = nn.Parameter(torch.zeros(1))
    self.temperature = nn.Parameter(torch.tensor(0.5))
    self.a = nn.Parameter(torch.zeros(8, 1, 1))
    self.b = nn.Parameter(torch.zeros(8, 1, 1))
    self.groups = nn.GroupNorm(2, 8)
    self.plain_groups = nn.GroupNorm(2, 8, affine=False)
    self.plain = nn.LayerNorm(8, elementwise_affine=False)
    self.fc = nn.Linear(8, 4)

  def forward(self, x):
    x = self.norm(self.conv(x)).relu()
    x = x + self.gamma * self.branch(x)
    y = x.norm(dim=(2, 3), keepdim=True)
    x = x + self.a * (x * y) + self.b
    x = self.plain_groups(self.groups(x)) / self.temperature
    return self.fc(self.plain(x.mean((2, 3))))


class Buffers(nn.Module):
  """Buffers that are not trained (mean, deviation, filter, mask, waves), next to a table that is
  trained."""

  def __init__(self):
    super().__init__()
    self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None])
    self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225])[:, None, None])
    self.conv = nn.Conv2d(3, 8, 2, 2)
    window = torch.tensor([1.0, 2, 1])
    self.register_buffer("blur", (window[:, None] * window / 16).repeat(8, 1, 1, 1))
    self.register_buffer("mask", (torch.arange(8) % 3 > 0).float()[:, None, None])
    place = torch.arange(16.0)[:, None] * 10000**(-torch.arange(0, 8, 2) / 8)
    self.register_buffer("waves", torch.stack([place.sin(), place.cos()], 2).reshape(1, 16, 8))
    self.places = nn.Parameter(torch.randn(1, 16, 8) * 0.02)
    self.fc = nn.Linear(8, 4)

  def forward(self, x):
    x = self.conv((x - self.mean) / self.std)
    x = F.conv2d(x, self.blur, padding=1, groups=8) * self.mask
    x = x.flatten(2).transpose(1, 2) + self.waves + self.places
    return self.fc(x.relu().mean(1))


kNets = {"layers": Layers, "scalars": Scalars, "buffers": Buffers}


def export(net, x, path, dynamo):
  torch.onnx.export(net, (x,), path, dynamo=dynamo, input_names=["x"], **({"external_data": False, "verbose": False} if dynamo else {}))
  model = onnx.load(path)  # removes the paths of this machine's sources from each node
  for node in model.graph.node:
    node.doc_string = ""
    kept = [entry for entry in node.metadata_props if entry.key == "pkg.torch.onnx.fx_node"]
    del node.metadata_props[:]
    node.metadata_props.extend(kept)
  onnx.save(model, path)


def main():
  folder = sys.argv[1] if len(sys.argv) > 1 else kFolder
  os.makedirs(folder, exist_ok=True)
  torch.backends.mha.set_fastpath_enabled(False)
  for name, kind in kNets.items():
    torch.manual_seed(0)
    net = kind()
    x, labels = torch.rand(4, 3, 8, 8), torch.arange(4)
    for dynamo in (False, True):
      export(copy.deepcopy(net).eval(), x, os.path.join(folder, f"{name}.{'new' if dynamo else 'old'}.onnx"), dynamo)
    net.train()
    golden = {"parameters": {key: p.numel() for key, p in net.named_parameters()}, "buffers": {key: b.numel() for key, b in net.named_buffers()}, "losses": []}
    optimizer = torch.optim.SGD(net.parameters(), kRate)
    for _ in range(kSteps):
      optimizer.zero_grad()
      loss = F.cross_entropy(net(x), labels)
      loss.backward()
      optimizer.step()
      golden["losses"].append(loss.item())
    save_file({"images": x, "labels": labels}, os.path.join(folder, name + ".safetensors"))
    with open(os.path.join(folder, name + ".json"), "w") as file:
      file.write(json.dumps(golden, indent=1) + "\n")
    print(name, golden["losses"], flush=True)


if __name__ == "__main__":
  main()
