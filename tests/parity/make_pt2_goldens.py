#!/usr/bin/python3
# Makes tests/golden/pt2: nets as torch.export.save writes them.
# It is here so that tools/onnx is judged by torch's own files. It needs torch 2.8 or later, and is run by build/parity-venv/bin/python. The small
# ResNet has the numbers of tests/golden/onnx/resnet.safetensors. It must not know Reprise's code.
import os
import sys

import torch
from make_onnx_goldens import ResNet
from safetensors.torch import load_file
from torch.export import Dim, export, save

kGoldens = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")


def write(folder, name, net, x, training=False, **more):
  program = export(net.train(training), (x,), **more)
  for node in program.graph.nodes:  # lines of the sources of whoever ran this
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


if __name__ == "__main__":
  main()
