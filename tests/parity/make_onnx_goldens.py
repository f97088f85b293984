#!/usr/bin/python3
# Makes tests/golden/onnx: a small ResNet as torch's exporter writes it, its state_dict, and its
# outputs. It judges tools/plan/onnx by torch's own files. In addition to torch it needs pip install
# onnx; run it with build/parity-venv/bin/python. It must not use Reprise's code.
import os
import sys

import torch
from safetensors.torch import save_file
from torch import nn

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "onnx")


class Block(nn.Module):

  def __init__(self, inputs, outputs, stride):
    super().__init__()
    self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    self.bn1 = nn.BatchNorm2d(outputs)
    self.relu = nn.ReLU()
    self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
    self.bn2 = nn.BatchNorm2d(outputs)
    projects = stride != 1 or inputs != outputs
    self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) if projects else None

  def forward(self, x):
    y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
    return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
  """torchvision's ResNet with three stages of one basic block each."""

  def __init__(self, width, classes):
    super().__init__()
    self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
    self.bn1 = nn.BatchNorm2d(width)
    self.relu = nn.ReLU()
    self.layer1 = nn.Sequential(Block(width, width, 1))
    self.layer2 = nn.Sequential(Block(width, 2 * width, 2))
    self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2))
    self.avgpool = nn.AdaptiveAvgPool2d(1)
    self.fc = nn.Linear(4 * width, classes)

  def forward(self, x):
    x = self.layer3(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))))
    return self.fc(torch.flatten(self.avgpool(x), 1))


def main():
  folder = sys.argv[1] if len(sys.argv) > 1 else kFolder
  os.makedirs(folder, exist_ok=True)
  torch.manual_seed(1)
  net = ResNet(4, 10)
  for buffer in net.buffers():  # other values than the initial ones
    if buffer.dtype == torch.float32:
      buffer.uniform_(0.5, 2)
  torch.onnx.export(net, (torch.randn(2, 3, 16, 16),), os.path.join(folder, "resnet.onnx"), dynamo=False, opset_version=17, do_constant_folding=False,
                    training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
  save_file({name: tensor.clone() for name, tensor in net.state_dict().items() if tensor.dtype == torch.float32}, os.path.join(folder, "resnet.safetensors"))
  x = torch.randn(3, 3, 16, 16)
  with torch.no_grad():
    save_file({"x": x, "outputs": net.eval()(x)}, os.path.join(folder, "resnet.outputs.safetensors"))


if __name__ == "__main__":
  main()
