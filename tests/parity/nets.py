# The two nets in plain PyTorch: torchvision's ResNet and Hugging Face's GPT-2, with their parameter
# names and layouts. Neither package is in Debian, and the goldens must use the names of users'
# files.
import math

import torch
from torch import nn
from torch.nn import functional


def conv(inputs, outputs, kernel, stride=1):
  return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class BasicBlock(nn.Module):
  expansion = 1

  def __init__(self, inputs, width, stride, downsample):
    super().__init__()
    self.conv1, self.bn1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
    self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
    self.downsample = downsample

  def forward(self, x):
    y = functional.relu(self.bn1(self.conv1(x)))
    y = self.bn2(self.conv2(y))
    return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
  expansion = 4

  def __init__(self, inputs, width, stride, downsample):
    super().__init__()
    self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
    self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
    self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
    self.downsample = downsample

  def forward(self, x):
    y = functional.relu(self.bn1(self.conv1(x)))
    y = functional.relu(self.bn2(self.conv2(y)))
    y = self.bn3(self.conv3(y))
    return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
  """Maps (N,C,H,W) to logits (N,classes). Stages layer1.. double the width; all but the first halve
  the image."""

  def __init__(self, model):
    super().__init__()
    block = BasicBlock if model["block"] == "basic" else Bottleneck
    channels, width = model["image"][2], model["width"]
    imagenet = model["stem"] == "imagenet"
    self.conv1 = conv(channels, width, 7, 2) if imagenet else conv(channels, width, 3)
    self.bn1 = nn.BatchNorm2d(width)
    self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if imagenet else nn.Identity()
    inputs, self.stages = width, []
    for index, units in enumerate(model["units"]):
      stage, inputs = self.make_stage(block, inputs, width << index, units, 1 if index == 0 else 2)
      self.stages.append(f"layer{index + 1}")
      self.add_module(self.stages[-1], stage)
    self.fc = nn.Linear(inputs, model["classes"])

  @staticmethod
  def make_stage(block, inputs, width, units, stride):
    outputs, blocks = width * block.expansion, []
    for _ in range(units):
      projection = stride != 1 or inputs != outputs
      shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)) if projection else None
      blocks.append(block(inputs, width, stride, shortcut))
      inputs, stride = outputs, 1
    return nn.Sequential(*blocks), inputs

  def forward(self, images):
    x = self.maxpool(functional.relu(self.bn1(self.conv1(images))))
    for stage in self.stages:
      x = getattr(self, stage)(x)
    return self.fc(x.mean(dim=(2, 3)))

  def initialise(self):
    for module in self.modules():
      if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class Conv1D(nn.Module):
  """Hugging Face's linear layer with a weight [in, out]."""

  def __init__(self, inputs, outputs):
    super().__init__()
    self.weight, self.bias = nn.Parameter(torch.zeros(inputs, outputs)), nn.Parameter(torch.zeros(outputs))

  def forward(self, x):
    return x @ self.weight + self.bias


class Attention(nn.Module):
  def __init__(self, model, layer):
    super().__init__()
    self.heads, width = model["n_head"], model["n_embd"]
    self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
    self.scale = (width // self.heads) ** -0.5 if model["scale_attn_weights"] else 1.0
    if model["scale_attn_by_inverse_layer_idx"]:
      self.scale /= layer + 1

  def forward(self, x):
    batch, length, width = x.shape
    q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
    scores = q @ k.transpose(2, 3) * self.scale
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    values = scores.masked_fill(future, -math.inf).softmax(dim=3) @ v
    return self.c_proj(values.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
  def __init__(self, model):
    super().__init__()
    self.c_fc, self.c_proj = Conv1D(model["n_embd"], model["n_inner"]), Conv1D(model["n_inner"], model["n_embd"])
    activations = {"gelu_new": gelu_new, "gelu": functional.gelu, "relu": functional.relu}
    self.activation = activations[model["activation_function"]]

  def forward(self, x):
    return self.c_proj(self.activation(self.c_fc(x)))


def gelu_new(x):
  return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


class Block(nn.Module):
  def __init__(self, model, layer):
    super().__init__()
    width, eps = model["n_embd"], model["layer_norm_epsilon"]
    self.ln_1, self.attn = nn.LayerNorm(width, eps), Attention(model, layer)
    self.ln_2, self.mlp = nn.LayerNorm(width, eps), Mlp(model)

  def forward(self, x):
    x = x + self.attn(self.ln_1(x))
    return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
  """Maps tokens (N,T) to logits (N,T,V) through the tied head."""

  def __init__(self, model):
    super().__init__()
    self.transformer = nn.Module()
    self.transformer.wte = nn.Embedding(model["vocab_size"], model["n_embd"])
    self.transformer.wpe = nn.Embedding(model["n_positions"], model["n_embd"])
    self.transformer.h = nn.ModuleList(Block(model, layer) for layer in range(model["n_layer"]))
    self.transformer.ln_f = nn.LayerNorm(model["n_embd"], model["layer_norm_epsilon"])
    self.range, self.layers = model["initializer_range"], model["n_layer"]

  def forward(self, tokens):
    body = self.transformer
    x = body.wte(tokens) + body.wpe.weight[:tokens.shape[1]]
    for block in body.h:
      x = block(x)
    return body.ln_f(x) @ body.wte.weight.t()

  def initialise(self):
    for name, parameter in self.named_parameters():
      if parameter.dim() == 2:
        residual = name.endswith("c_proj.weight")
        nn.init.normal_(parameter, 0.0, self.range / math.sqrt(2 * self.layers) if residual else self.range)


def make_net(model):
  return (ResNet if model["family"] == "resnet" else Gpt2)(model)


def jitter_vectors(net, jitter):
  """Moves every vector away from its initial 0 or 1, so that a swapped or unread vector shows in
  the loss."""
  for name, tensor in net.state_dict().items():
    if tensor.dtype == torch.int64:
      tensor.fill_(3)
    elif tensor.dim() == 1:
      noise = jitter * torch.randn(tensor.shape)
      tensor.add_(noise.abs() if name.endswith("running_var") else noise)
