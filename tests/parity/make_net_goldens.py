#!/usr/bin/python3
# Makes tests/golden/nets: small nets with popular structures, as torch's two exporters and
# torch.export write them, and their losses and gradients. They judge imported nets by torch's own
# gradients. In addition to torch it needs pip install onnx onnxscript transformers peft; run it
# with build/parity-venv/bin/python. It must not use Reprise's code. tests/golden/nets/README.md
# describes each file.
import copy
import json
import os
import sys

import nets
import onnx
import peft
import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "nets")
kBatch, kClasses = 3, 5


kAdapters = {"r": 2, "lora_alpha": 3, "target_modules": ["stem.0", "point", "down", "fc"], "rank_pattern": {"down": 3}, "modules_to_save": ["head"]}


def conv_bn(inputs, outputs, kernel, activation, stride=1, groups=1, dilation=1):
  return nn.Sequential(
      nn.Conv2d(inputs, outputs, kernel, stride, dilation * (kernel // 2), dilation, groups, bias=False), nn.BatchNorm2d(outputs), activation())


class Gate(nn.Module):
  """Squeeze and excitation (Hu et al. 2018)."""

  def __init__(self, channels, squeezed, activation, gate):
    super().__init__()
    self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
    self.activation, self.gate = activation(), gate()

  def forward(self, x):
    return x * self.gate(self.fc2(self.activation(self.fc1(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
  """The block of MobileNetV2, V3 and EfficientNet: expansion, depthwise convolution, gate,
  projection."""

  def __init__(self, inputs, outputs, kernel, stride, activation, gate=None, widened=2):
    super().__init__()
    inner = widened * inputs
    layers = [conv_bn(inputs, inner, 1, activation), conv_bn(inner, inner, kernel, activation, stride, inner)]
    if gate is not None:
      layers.append(Gate(inner, 4, *gate))
    self.layers = nn.Sequential(*layers, conv_bn(inner, outputs, 1, nn.Identity))
    self.adds = stride == 1 and inputs == outputs

  def forward(self, x):
    return x + self.layers(x) if self.adds else self.layers(x)


class Classifier(nn.Module):

  def __init__(self, features, channels, hidden=0, activation=nn.Hardswish):
    super().__init__()
    self.features = features
    self.head = nn.Sequential(nn.Linear(channels, hidden), activation(), nn.Linear(hidden, kClasses)) if hidden else nn.Linear(channels, kClasses)

  def forward(self, x):
    return self.head(self.features(x).mean((2, 3)))


def mobilenet_v2():
  return Classifier(
      nn.Sequential(conv_bn(3, 8, 3, nn.ReLU6, 2), Inverted(8, 8, 3, 1, nn.ReLU6), Inverted(8, 12, 3, 2, nn.ReLU6), conv_bn(12, 20, 1, nn.ReLU6)), 20)


def mobilenet_v3():
  return Classifier(
      nn.Sequential(conv_bn(3, 8, 3, nn.Hardswish, 2), Inverted(8, 8, 3, 1, nn.ReLU, (nn.ReLU, nn.Hardsigmoid)),
                    Inverted(8, 12, 5, 2, nn.Hardswish, (nn.ReLU, nn.Hardsigmoid))), 12, 16)


def efficientnet():
  return Classifier(
      nn.Sequential(conv_bn(3, 8, 3, nn.SiLU, 2), Inverted(8, 8, 3, 1, nn.SiLU, (nn.SiLU, nn.Sigmoid)), Inverted(8, 12, 5, 2, nn.SiLU, (nn.SiLU, nn.Sigmoid)),
                    conv_bn(12, 20, 1, nn.SiLU)), 20)


class ChannelsLast(nn.LayerNorm):

  def forward(self, x):
    return F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):

  def __init__(self, channels):
    super().__init__()
    self.conv, self.norm = nn.Conv2d(channels, channels, 7, padding=3, groups=channels), nn.LayerNorm(channels, eps=1e-6)
    self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
    self.scale = nn.Parameter(torch.ones(channels, 1, 1))

  def forward(self, x):
    y = self.norm(self.conv(x).permute(0, 2, 3, 1))
    return x + self.scale * self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


def convnext():
  return Classifier(
      nn.Sequential(nn.Conv2d(3, 8, 4, 4), ChannelsLast(8), ConvNextBlock(8), ChannelsLast(8), nn.Conv2d(8, 12, 2, 2), ConvNextBlock(12)), 12)


class Vit(nn.Module):
  """torchvision's ViT: a class token, learned positions, torch's own attention."""

  def __init__(self, width=16, heads=2, depth=2, patch=8, side=16):
    super().__init__()
    self.patches = nn.Conv2d(3, width, patch, patch)
    self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
    self.positions = nn.Parameter(torch.zeros(1, (side // patch)**2 + 1, width))
    self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(depth)])
    self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, kClasses)

  def forward(self, x):
    tokens = self.patches(x).flatten(2).transpose(1, 2)
    x = torch.cat([self.cls_token.expand(tokens.shape[0], -1, -1), tokens], 1) + self.positions
    for block in self.blocks:
      x = block(x)
    return self.head(self.norm(x)[:, 0])


class DinoBlock(nn.Module):
  """timm's block: one layer for q, k and v, and layer scale."""

  def __init__(self, width, heads):
    super().__init__()
    self.heads = heads
    self.norm1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
    self.norm2, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
    self.gamma1, self.gamma2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

  def forward(self, x):
    n, t, c = x.shape
    q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c)
    x = x + self.gamma1 * self.proj(y)
    return x + self.gamma2 * self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Dino(nn.Module):

  def __init__(self, width=16, heads=4):
    super().__init__()
    self.patches = nn.Conv2d(3, width, 4, 4)
    self.pos_embed = nn.Parameter(torch.zeros(1, 16, width))
    self.blocks = nn.Sequential(DinoBlock(width, heads), DinoBlock(width, heads))
    self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, kClasses)

  def forward(self, x):
    x = self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.pos_embed)
    return self.head(self.norm(x).mean(1))


class PoolBlock(nn.Module):

  def __init__(self, channels):
    super().__init__()
    self.norm1, self.norm2 = nn.GroupNorm(1, channels), nn.GroupNorm(2, channels)
    self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    self.fc1, self.fc2 = nn.Conv2d(channels, 2 * channels, 1), nn.Conv2d(2 * channels, channels, 1)
    self.scale = nn.Parameter(torch.ones(channels))

  def forward(self, x):
    y = self.norm1(x)
    x = x + self.scale.unsqueeze(-1).unsqueeze(-1) * (self.pool(y) - y)
    return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def poolformer():
  return Classifier(nn.Sequential(nn.Conv2d(3, 8, 7, 4, 2), PoolBlock(8), nn.Conv2d(8, 12, 3, 2, 1), PoolBlock(12)), 12)


class Shuffle(nn.Module):

  def __init__(self, channels):
    super().__init__()
    half = channels // 2
    self.branch = nn.Sequential(conv_bn(half, half, 1, nn.ReLU), conv_bn(half, half, 3, nn.Identity, groups=half), conv_bn(half, half, 1, nn.ReLU))

  def forward(self, x):
    a, b = x.chunk(2, 1)
    y = torch.cat([a, self.branch(b)], 1)
    n, c, h, w = y.shape
    return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet():
  return Classifier(nn.Sequential(conv_bn(3, 12, 3, nn.ReLU, 2), nn.MaxPool2d(3, 2, 1), Shuffle(12), Shuffle(12), conv_bn(12, 16, 1, nn.ReLU)), 16)


class Dense(nn.Module):

  def __init__(self, channels, growth):
    super().__init__()
    self.layers = nn.ModuleList([nn.Sequential(nn.BatchNorm2d(channels + i * growth), nn.ReLU(), nn.Conv2d(channels + i * growth, growth, 3, padding=1, bias=False)) for i in range(3)])

  def forward(self, x):
    for layer in self.layers:
      x = torch.cat([x, layer(x)], 1)
    return x


def densenet():
  return Classifier(nn.Sequential(conv_bn(3, 8, 3, nn.ReLU), Dense(8, 4), conv_bn(20, 10, 1, nn.ReLU), nn.AvgPool2d(2, 2), Dense(10, 4), nn.BatchNorm2d(22), nn.LeakyReLU(0.1)), 22)


class GroupedBlock(nn.Module):

  def __init__(self, channels):
    super().__init__()
    self.layers = nn.Sequential(conv_bn(channels, channels, 1, nn.ReLU), conv_bn(channels, channels, 3, nn.ReLU, groups=4), conv_bn(channels, channels, 1, nn.Identity))

  def forward(self, x):
    return F.relu(x + self.layers(x))


def resnext():
  return Classifier(nn.Sequential(conv_bn(3, 16, 3, nn.ReLU, 2), GroupedBlock(16), conv_bn(16, 16, 3, nn.ELU, dilation=2), GroupedBlock(16)), 16)


class Unet(nn.Module):
  """An encoder, a decoder with skips, and a head that reads the whole image."""

  def __init__(self, width=6):
    super().__init__()
    self.down1, self.down2, self.bottom = conv_bn(3, width, 3, nn.SiLU), conv_bn(width, 2 * width, 3, nn.SiLU), conv_bn(2 * width, 4 * width, 3, nn.Mish)
    self.up2, self.up1 = conv_bn(6 * width, 2 * width, 3, nn.SiLU), conv_bn(3 * width, width, 3, nn.Softplus)
    self.head = nn.Linear(width * 16, kClasses)

  def map(self, x):
    a = self.down1(x)
    b = self.down2(F.max_pool2d(a, 2))
    c = self.bottom(F.max_pool2d(b, 2))
    y = self.up2(torch.cat([F.interpolate(c, scale_factor=2, mode="nearest"), b], 1))
    return self.up1(torch.cat([F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False), a], 1))

  def forward(self, x):
    return self.head(torch.flatten(F.avg_pool2d(self.map(x), 4), 1))


class Segmenter(Unet):
  """A Unet with a class for each pixel; some pixels have none."""

  def __init__(self, width=6):
    super().__init__(width)
    self.head = nn.Conv2d(width, kClasses, 1)

  def forward(self, x):
    return self.head(self.map(x))


class Csp(nn.Module):
  """YOLOv8's C2f block."""

  def __init__(self, inputs, outputs):
    super().__init__()
    half = outputs // 2
    self.first, self.last = conv_bn(inputs, outputs, 1, nn.SiLU), conv_bn(3 * half, outputs, 1, nn.SiLU)
    self.inner = nn.Sequential(conv_bn(half, half, 3, nn.SiLU), conv_bn(half, half, 3, nn.SiLU))

  def forward(self, x):
    a, b = self.first(x).chunk(2, 1)
    return self.last(torch.cat([a, b, b + self.inner(b)], 1))


class Yolo(nn.Module):
  """A backbone with pools in series and a neck with two scales."""

  def __init__(self, width=8):
    super().__init__()
    self.stem, self.c3, self.down = conv_bn(3, width, 3, nn.SiLU, 2), Csp(width, width), conv_bn(width, 2 * width, 3, nn.SiLU, 2)
    self.squeeze, self.expand = conv_bn(2 * width, width, 1, nn.SiLU), conv_bn(4 * width, 2 * width, 1, nn.SiLU)
    self.neck, self.head = Csp(3 * width, width), nn.Linear(3 * width, kClasses)

  def forward(self, x):
    c3 = self.c3(self.stem(x))
    p = [self.squeeze(self.down(c3))]
    for _ in range(3):
      p.append(F.max_pool2d(p[-1], 5, 1, 2))
    c5 = self.expand(torch.cat(p, 1))
    n3 = self.neck(torch.cat([F.interpolate(c5, scale_factor=2.0, mode="nearest"), c3], 1))
    return self.head(torch.cat([n3.mean((2, 3)), c5.mean((2, 3))], 1))


class WindowBlock(nn.Module):
  """Attention within windows (Liu et al. 2021), which may be shifted, with a learned bias for each
  distance between two positions."""

  def __init__(self, width, heads, side, window, shift):
    super().__init__()
    self.heads, self.side, self.window, self.shift = heads, side, window, shift
    self.norm, self.qkv, self.last = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
    self.bias = nn.Parameter(torch.zeros((2 * window - 1)**2, heads))
    places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
    apart = places[:, :, None] - places[:, None, :] + window - 1
    self.register_buffer("distances", apart[0] * (2 * window - 1) + apart[1])
    part = torch.zeros(side, side)
    for axis in (0, 1):  # marks positions that the shift brings into one window though they were no neighbours
      wrapped = torch.arange(side) >= side - shift
      part = part + (wrapped.float() * (axis + 1)).unsqueeze(1 - axis)
    part = self.cut(part.reshape(1, side, side, 1), 1).squeeze(2)
    self.register_buffer("strangers", (part[:, :, None] != part[:, None, :]).long().unsqueeze(1))

  def cut(self, x, width):
    n, w = self.side // self.window, self.window
    return x.reshape(-1, n, w, n, w, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, width)

  def forward(self, x):  # [N,H,W,C]
    n, w, width = self.side // self.window, self.window, x.shape[3]
    y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.norm(x)
    q, k, v = self.qkv(self.cut(y, width)).reshape(-1, w * w, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
    scores = (q * (width // self.heads)**-0.5) @ k.transpose(-2, -1)
    scores = scores + self.bias[self.distances.reshape(-1)].reshape(w * w, w * w, -1).permute(2, 0, 1)
    if self.shift:
      scores = (scores.reshape(-1, n * n, self.heads, w * w, w * w) - 8 * self.strangers.float()).reshape(-1, self.heads, w * w, w * w)
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, w * w, width)
    y = y.reshape(-1, n, n, w, w, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, self.side, self.side, width)
    y = torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y
    return x + self.last(y)


class Windows(nn.Module):

  def __init__(self, width=12):
    super().__init__()
    self.stem = nn.Conv2d(3, width, 2, 2)
    self.blocks, self.head = nn.Sequential(WindowBlock(width, 3, 8, 4, 0), WindowBlock(width, 3, 8, 4, 2)), nn.Linear(width, kClasses)

  def forward(self, x):
    return self.head(self.blocks(self.stem(x).permute(0, 2, 3, 1)).mean((1, 2)))


class Crossed(nn.Module):
  """Cross-attention: to fewer positions (Wang et al. 2021), with mixed heads (Touvron et al. 2021),
  and between channels."""

  def __init__(self, width=12, heads=2):
    super().__init__()
    self.heads = heads
    self.stem, self.fewer = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, width, 2, 2)
    self.q, self.kv, self.mix = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(heads, heads)
    self.channels, self.pool, self.head = nn.Linear(width, 3 * width), nn.Linear(width, 1), nn.Linear(width, kClasses)

  def forward(self, x):
    y = self.stem(F.pad(x, (1, 2, 2, 1)))
    q = self.q(y.flatten(2).transpose(1, 2)).unflatten(2, (self.heads, -1)).transpose(1, 2)
    kv = self.kv(self.fewer(y).flatten(2).transpose(1, 2)).unflatten(2, (2, self.heads, -1))
    k, v = kv.permute(2, 0, 3, 1, 4)
    weights = self.mix(torch.einsum("bhid,bhjd->bhij", q, k).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
    y = y.flatten(2).transpose(1, 2) + torch.einsum("bhij,bhjd->bihd", weights, v).flatten(2)
    q, k, v = self.channels(y).chunk(3, -1)
    y = y + v @ (k.transpose(1, 2) @ q).softmax(-1) + F.scaled_dot_product_attention(q[:, None, :5], k[:, None], v[:, None]).sum(2)
    return self.head((y * self.pool(y).softmax(1)).sum(1))


# The vocabulary of texts, the length of each, and how many of its tokens are no padding.
kTokens, kLength, kLengths = 31, 12, (12, 7, 3)
kSizes = dict(vocab_size=kTokens, max_position_embeddings=20)
kBertSizes = dict(kSizes, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)


class Minilm(nn.Module):
  """A sentence encoder: BERT and the mean over a text's tokens without padding."""
  pad = 0

  def __init__(self):
    super().__init__()
    self.bert = transformers.BertModel(transformers.BertConfig(**kBertSizes), add_pooling_layer=False)
    self.head = nn.Linear(16, kClasses)

  def forward(self, input_ids, attention_mask):
    y = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    mask = attention_mask.unsqueeze(-1).expand(y.size()).float()
    return self.head((y * mask).sum(1) / torch.clamp(mask.sum(1), min=1e-9))


class Encoder(nn.Module):
  """One of transformers' own classifiers of texts."""

  def __init__(self, net, pad):
    super().__init__()
    self.net, self.pad = net, pad

  def forward(self, input_ids, attention_mask):
    return self.net(input_ids=input_ids, attention_mask=attention_mask).logits


def distilbert():
  config = transformers.DistilBertConfig(**kSizes, dim=16, n_layers=2, n_heads=4, hidden_dim=24, num_labels=kClasses)
  return Encoder(transformers.DistilBertForSequenceClassification(config), 0)


def roberta():
  return Encoder(transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**kBertSizes, num_labels=kClasses)), 1)


class Typed(nn.Module):
  """A classifier of transformers that distinguishes the two texts of a row. Its inputs may be in
  another order, or not all."""

  def __init__(self, net, inputs):
    super().__init__()
    self.net, self.pad, self.inputs = net, 0, inputs


class TypesFirst(Typed):

  def __init__(self):
    net = transformers.BertForSequenceClassification(transformers.BertConfig(**kBertSizes, num_labels=kClasses))
    super().__init__(net, ["token_type_ids", "attention_mask", "input_ids"])

  def forward(self, token_type_ids, attention_mask, input_ids):
    return self.net(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits


class WithPositions(Typed):
  """ALBERT (Lan et al. 2020): its tables are narrower than its layers, which share their
  weights."""

  def __init__(self):
    config = transformers.AlbertConfig(**kBertSizes, embedding_size=8, num_labels=kClasses)
    super().__init__(transformers.AlbertForSequenceClassification(config), ["input_ids", "position_ids", "token_type_ids", "attention_mask"])

  def forward(self, input_ids, position_ids, token_type_ids, attention_mask):
    return self.net(input_ids=input_ids, position_ids=position_ids, token_type_ids=token_type_ids, attention_mask=attention_mask).logits


class WithoutMask(Typed):
  """ELECTRA (Clark et al. 2020), for texts without padding."""

  def __init__(self):
    config = transformers.ElectraConfig(**kBertSizes, embedding_size=12, num_labels=kClasses)
    super().__init__(transformers.ElectraForSequenceClassification(config), ["input_ids", "token_type_ids"])

  def forward(self, input_ids, token_type_ids):
    return self.net(input_ids=input_ids, token_type_ids=token_type_ids).logits


class Padded(nn.Module):
  """Texts with positions, whose mean includes a token whose table row gets no gradient
  (padding_idx)."""
  pad, inputs = 0, ["input_ids"]

  def __init__(self, width=8):
    super().__init__()
    self.words, self.places = nn.Embedding(kTokens, width, padding_idx=23), nn.Embedding(20, width)
    self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, kClasses)

  def forward(self, input_ids):
    x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
    return self.head(F.silu(self.norm(x)).mean(1))


kTextNets = {"padded": Padded, "minilm": Minilm, "distilbert": distilbert, "roberta": roberta, "bert_pairs": TypesFirst, "albert": WithPositions, "electra": WithoutMask}


class Gpt2(nn.Module):
  """transformers' language model, with its head tied to its embedding."""

  def __init__(self):
    super().__init__()
    config = transformers.GPT2Config(vocab_size=kTokens, n_positions=20, n_embd=16, n_layer=2, n_head=2)
    config._attn_implementation = "eager"
    self.net = transformers.GPT2LMHeadModel(config)

  def forward(self, input_ids, attention_mask=None):
    return self.net(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


def plain_gpt2():
  return nets.Gpt2(dict(vocab_size=kTokens, n_positions=20, n_embd=16, n_layer=2, n_head=2, n_inner=64, activation_function="gelu_new",
                        layer_norm_epsilon=1e-5, initializer_range=0.02, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False))


kLanguageNets = {"gpt2": Gpt2, "plain_gpt2": plain_gpt2}


def resnet():
  return nets.ResNet({"block": "bottleneck", "units": [1, 2, 1], "width": 4, "stem": "cifar", "classes": kClasses, "image": [16, 16, 3]})


class Adapted(nn.Module):
  """Layers of each kind that can have an adapter."""

  def __init__(self):
    super().__init__()
    self.stem, self.point = conv_bn(3, 8, 3, nn.ReLU), nn.Conv2d(8, 6, 1)
    self.down, self.norm = nn.Conv2d(6, 10, 3, 2, 1), nn.BatchNorm2d(10)
    self.fc, self.head = nn.Linear(10, 7), nn.Linear(7, kClasses)

  def forward(self, x):
    y = F.silu(self.norm(self.down(F.silu(self.point(self.stem(x))))))
    return self.head(F.silu(self.fc(y.mean((2, 3)))))


class Shared(nn.Module):
  """A tower for two scales, as in RetinaNet (Lin et al. 2017), and layers that are used several
  times."""

  def __init__(self):
    super().__init__()
    self.stem, self.down, self.tower = conv_bn(3, 8, 3, nn.ReLU, 2), nn.Conv2d(8, 8, 3, 2, 1), conv_bn(8, 8, 3, nn.SiLU)
    self.scale, self.norm, self.fc, self.head = nn.Parameter(torch.ones(8)), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, kClasses)

  def forward(self, x):
    fine = self.stem(x)
    scales = [self.fc(self.norm(self.scale * self.tower(y).mean((2, 3)))) for y in (fine, self.down(fine))]
    return self.head(F.silu(self.fc(F.silu(scales[0]))) + scales[1])


class Pyramid(nn.Module):
  """Pools to sizes that do not divide the maps, as in PSPNet (Zhao et al. 2017), after a norm
  without weight and bias."""

  def __init__(self):
    super().__init__()
    self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6, affine=False), nn.SiLU())
    self.levels = nn.ModuleList([nn.Conv2d(6, 3, 1) for _ in range(4)])
    self.head = nn.Linear(18 * 7, kClasses)

  def forward(self, x):
    x = self.stem(x)
    pools = [F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, (3, 2)), F.adaptive_avg_pool2d(x, 6), F.adaptive_max_pool2d(x, (5, 8))]
    levels = [F.interpolate(level(pool), (8, 8), mode="bilinear") for level, pool in zip(self.levels, pools)]
    x = F.adaptive_avg_pool2d(torch.cat([x, *levels], 1), (3, 5)).flatten(2)
    return self.head(F.adaptive_max_pool1d(F.adaptive_avg_pool1d(x, 11), 7).flatten(1))


class RootNorm(nn.Module):
  """An RMS norm as transformers writes it."""

  def __init__(self, channels):
    super().__init__()
    self.weight = nn.Parameter(torch.ones(channels))

  def forward(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Rooted(nn.Module):
  """Norms without a mean (Zhang & Sennrich 2019) and of a map's responses (Woo et al. 2023), and
  attention by cosine (Liu et al. 2022)."""

  def __init__(self, width=8):
    super().__init__()
    self.stem, self.norm, self.last, self.head = nn.Conv2d(3, width, 4, 4), RootNorm(width), RootNorm(width), nn.Linear(width, kClasses)
    self.qk, self.scale = nn.Linear(width, 2 * width), nn.Parameter(torch.ones(16, 1))
    self.gamma, self.beta = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

  def forward(self, x):
    x = self.norm(self.stem(x).permute(0, 2, 3, 1))
    size = x.norm(p=2, dim=(1, 2), keepdim=True)
    x = x + self.gamma * (x * (size / (size.mean(-1, keepdim=True) + 1e-6))) + self.beta
    x = x.flatten(1, 2)
    q, k = self.qk(x).chunk(2, -1)
    scores = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(1, 2)) * self.scale.clamp(max=4.6).exp()
    return self.head(self.last(scores.softmax(-1) @ x).mean(1))


class Clipped(nn.Module):
  """Bounded functions, learned slopes (He et al. 2015), strided slices, and maxima over all
  positions."""

  def __init__(self, width=8):
    super().__init__()
    self.stem, self.one, self.each = nn.Conv2d(3, width, 3, padding=1), nn.PReLU(), nn.PReLU(width)
    self.point, self.head = nn.Conv2d(width, width, 1), nn.Linear(2 * width, kClasses)

  def forward(self, x):
    x = self.each(self.stem(x)[:, :, ::2, 1::3])
    x = self.point(self.one(x) + x.clamp(min=-0.5) + F.hardtanh(x, -1.25, 2))
    return self.head(torch.cat([F.adaptive_max_pool2d(x, 1).flatten(1), x.clamp(-0.75, 1.5).amax((2, 3))], 1))


class SeenBlock(WindowBlock):
  """A WindowBlock with torch's own attention. Its mask is the sum of the distances' biases and of
  the shift's mask, expanded for each sample."""

  def forward(self, x):
    n, w, width = self.side // self.window, self.window, x.shape[3]
    y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
    q, k, v = self.qkv(self.cut(y, width)).reshape(-1, w * w, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
    mask = self.bias[self.distances.reshape(-1)].reshape(w * w, w * w, -1).permute(2, 0, 1).unsqueeze(0)
    mask = mask + (-8 * self.strangers.float()).unsqueeze(0).expand(x.shape[0], -1, -1, -1, -1).reshape(-1, 1, w * w, w * w)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(-1, w * w, width)
    y = y.reshape(-1, n, n, w, w, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, self.side, self.side, width)
    return x + self.last(torch.roll(y, (self.shift, self.shift), (1, 2)))


class Seen(nn.Module):
  """Attention with masks that are expanded for each sample, as in transformers' nets for images:
  one that masks nothing, and a sum."""

  def __init__(self, width=12, heads=2):
    super().__init__()
    self.heads, self.stem, self.block = heads, nn.Conv2d(3, width, 2, 2), SeenBlock(width, 3, 8, 4, 2)
    self.point, self.token, self.qkv, self.head = nn.Conv2d(width, width, 2, 2), nn.Parameter(torch.zeros(1, 1, width)), nn.Linear(width, 3 * width), nn.Linear(width, kClasses)

  def forward(self, x):
    x = self.point(self.block(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)).flatten(2).transpose(1, 2)
    x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
    batch, length, width = x.shape
    mask = (torch.arange(length)[None, None, :, None] >= 0).expand(batch, -1, length, length)
    q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return self.head((x + y.transpose(1, 2).flatten(2))[:, 0])


class Placed(nn.Module):
  """Sinusoidal positions (Vaswani et al. 2017, on two axes), expanded for each sample and read by
  layers before they are added."""

  def __init__(self, width=8, waves=4):
    super().__init__()
    self.waves, self.stem, self.place = waves, nn.Conv2d(3, width, 4, 4), nn.Conv2d(2 * waves, width, 3, padding=1)
    self.norm, self.head, self.slope = nn.GroupNorm(2, width), nn.Linear(width, kClasses), nn.Conv2d(1, width, 1)

  def forward(self, x):
    x = self.stem(x)
    x = x + self.slope((torch.arange(16) / 16).to(x.dtype).reshape(1, 1, 4, 4)).repeat(x.shape[0], 1, 1, 1)
    seen = ~torch.zeros(x.shape[0], 4, 4, dtype=torch.bool)
    lengths = 10**(2 * torch.arange(self.waves).div(2, rounding_mode="floor") / self.waves)
    parts = []
    for axis in (1, 2):
      turns = seen.cumsum(axis, dtype=x.dtype)[..., None] * 1.5 / lengths
      parts.append(torch.stack([turns[..., ::2].sin(), turns[..., 1::2].cos()], 4).flatten(3))
    return self.head(self.norm(x + F.gelu(self.place(torch.cat(parts, 3).permute(0, 3, 1, 2)))).mean((2, 3)))


class Obeyed(nn.Module):
  """All that a .pt2 file states about gradients: frozen parameters, buffers, detach, no_grad, norms
  in evaluation or without parameters, scales, ties."""

  def __init__(self, width=8):
    super().__init__()
    self.stem, self.frozen = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
    for parameter in (*self.stem.parameters(), *self.frozen.parameters()):
      parameter.requires_grad = False  # its norm still uses the batch's statistics
    self.kept = nn.BatchNorm2d(width)
    self.trunk, self.norm = nn.Conv2d(width, width, 1), nn.BatchNorm2d(width)  # no gradient reaches them
    self.aside, self.body = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 3, padding=1)
    self.register_buffer("blur", torch.ones(width, 1, 3, 3))
    self.register_buffer("gate", torch.ones(width, 1, 1))
    self.register_buffer("steps", torch.ones(1, 9, 9), persistent=False)
    self.groups, self.instance = nn.GroupNorm(2, width, affine=False), nn.InstanceNorm2d(width)
    self.layer, self.plain, self.root = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, elementwise_affine=False), nn.RMSNorm(width, elementwise_affine=False)
    self.gain = nn.Parameter(torch.tensor(1.0))
    self.head = nn.Linear(4 * width, kClasses)

  def train(self, mode=True):
    super().train(mode)
    self.kept.eval()
    return self

  def forward(self, x):
    x = F.silu(self.kept(self.frozen(self.stem(x))))
    with torch.no_grad():
      fixed = F.silu(self.norm(self.trunk(x)))
      also = fixed.mean((2, 3), keepdim=True)
    x = x + self.aside(x.detach()) + fixed * self.gain + also
    x = F.interpolate(F.conv2d(x * self.gate, self.blur, padding=1, groups=8), scale_factor=0.75, mode="nearest")
    x = self.groups(F.interpolate(self.body(x), scale_factor=0.7, mode="nearest-exact"))
    x = F.interpolate(self.instance(x), scale_factor=1.2, mode="bilinear")
    x = self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    tied = (x - x.detach() + (self.steps > 1).to(x.dtype)).amax((2, 3))  # several are the maximum
    rows = x.flatten(2).transpose(1, 2)
    rows = torch.cat([self.plain(rows), self.root(rows)], 2)
    return self.head(torch.cat([tied + x.mean((2, 3)), rows.mean(1), x.flatten(2).max(2)[0]], 1))


kNets = {"obeyed": Obeyed, "adapted": Adapted, "seen": Seen, "placed": Placed, "pyramid": Pyramid, "rooted": Rooted, "clipped": Clipped, "shared": Shared, "mobilenet_v2": mobilenet_v2, "mobilenet_v3": mobilenet_v3, "efficientnet": efficientnet, "convnext": convnext, "vit": Vit, "dino": Dino,
         "poolformer": poolformer, "shufflenet": shufflenet, "densenet": densenet, "resnext": resnext, "unet": Unet, "yolo": Yolo, "segmenter": Segmenter, "windows": Windows,
         "crossed": Crossed, "resnet": resnet, **kTextNets, **kLanguageNets}
# Nets without an ONNX file: adapters need none, the exporters refuse such pools, and ONNX cannot
# express the gradients of the others.
kProgramsAlone = ("adapted", "pyramid", "obeyed", "padded")
kOlderAlone = ("seen", "placed")  # the newer exporter refuses such masks, and may make constants of its own parameters
kNoLabel, kNoByte = -100, 255  # torch's ignored label, and the one of a file of u8 labels


def plain_name(name):
  """Returns a parameter's name before peft added adapters to the net."""
  return name.removeprefix("base_model.model.").replace(".default.", ".").replace(".modules_to_save.", ".")


def loss_of(net, x, labels):
  logits = net(*x)
  return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) if labels.dim() == 2 else F.cross_entropy(logits, labels)


def gradients(net, x, labels):
  net.zero_grad()
  loss = loss_of(net, x, labels)
  loss.backward()
  return loss.item(), {plain_name(name): parameter.grad.double().clone() for name, parameter in net.named_parameters() if parameter.grad is not None}


def doubled(x):
  return tuple(each.double() if each.is_floating_point() else each for each in x)


def distance(a, b):
  return torch.linalg.vector_norm(a - b).item()


def nudged(net, generator):
  other = copy.deepcopy(net)
  with torch.no_grad():
    for parameter in other.parameters():
      parameter.mul_(1 + (torch.rand(parameter.shape, generator=generator) - 0.5) * 2**-22)
  return other


def evaluation(net, x, labels):
  with torch.no_grad():
    return loss_of(net.eval(), x, labels).item()


def with_adapters(net):
  """Returns a copy of the net in evaluation mode with peft's adapters, whose weights are random
  instead of zero."""
  config = peft.LoraConfig(**kAdapters, lora_dropout=0.0)
  adapted = peft.get_peft_model(copy.deepcopy(net), config).eval()
  with torch.no_grad():
    for name, parameter in adapted.named_parameters():
      if "lora_" in name:
        parameter.normal_(0, 0.3)
  return adapted


def texts(net):
  """Returns token ids and the other inputs that the net reads: their mask, the types (first or
  second text), the positions."""
  pad = net.pad
  ids, mask = torch.randint(2, kTokens, (kBatch, kLength)), torch.zeros(kBatch, kLength, dtype=torch.long)
  lengths = kLengths if "attention_mask" in input_names_of(net) else (kLength,) * kBatch
  for row, length in enumerate(lengths):
    ids[row, length:], mask[row, :length] = pad, 1
  read = {"input_ids": ids, "attention_mask": mask, "position_ids": torch.arange(kLength).expand(kBatch, -1).contiguous()}
  types = torch.zeros_like(ids)
  for row, length in enumerate(lengths):
    types[row, length // 2:length] = 1
  return tuple({**read, "token_type_ids": types}[name] for name in input_names_of(net))


def input_names_of(net):
  return getattr(net, "inputs", ["input_ids", "attention_mask"])


def in_other_order(net, x):
  """Returns net and inputs for a second run in f32 whose sums are in another order."""
  if not x[0].is_floating_point():
    return copy.deepcopy(net), tuple(each.flip(0) for each in x)
  return copy.deepcopy(net).to(memory_format=torch.channels_last), (x[0].contiguous(memory_format=torch.channels_last),)


def attempt(name, seed):
  """Returns (net, inputs, labels, f64 gradients, golden), or None if other f32 runs come too near
  to the bounds."""
  torch.manual_seed(seed)
  net = kNets[name]().train()
  for module in net.modules():  # transformers' nets have dropout by default
    if isinstance(module, nn.Dropout):
      module.p = 0.0
  is_text = name in kTextNets or name in kLanguageNets
  if is_text:
    net.eval()  # their attention has dropout that is no module
  with torch.no_grad():
    for parameter in net.parameters():  # no two are equal: an exporter would merge them
      if parameter.dim() < 2 or parameter.shape[-1] == 1 and parameter.dim() == 3:
        parameter.uniform_(0.5, 1.5)
      else:
        parameter.normal_(0, (2 / parameter[0].numel())**0.5)
    for buffer in net.buffers():
      if buffer.dtype == torch.float32:
        buffer.uniform_(0.5, 1.5)
  if name == "adapted":
    net = with_adapters(net.eval())
  is_map = kNets[name] is Segmenter
  x = texts(net) if name in kTextNets else (torch.randn(kBatch, 3, 16, 16),)
  labels = torch.randint(0, kClasses, (kBatch, 16, 16) if is_map else (kBatch,))
  if name in kLanguageNets:
    x = (torch.randint(0, kTokens, (kBatch, kLength)), torch.ones(kBatch, kLength, dtype=torch.long))[:2 if name == "gpt2" else 1]
    labels = torch.randint(0, kTokens, (kBatch, kLength))
  if is_map:
    labels[torch.rand(labels.shape) < 0.2] = kNoLabel
  loss64, exact = gradients(copy.deepcopy(net).double(), doubled(x), labels)
  loss32, own = gradients(copy.deepcopy(net), x, labels)
  _, other = gradients(*in_other_order(net, x), labels.flip(0) if is_text else labels)
  bounds = {key: 5 * max(distance(own[key], exact[key]), distance(other[key], exact[key])) for key in exact}
  generator = torch.Generator().manual_seed(seed)
  for _ in range(4):
    _, other = gradients(nudged(net, generator), x, labels)
    if any(distance(other[key], exact[key]) > 0.6 * bounds[key] for key in exact):
      return None
  golden = {"seed": seed, "has_batch_norm": any(isinstance(module, nn.BatchNorm2d) for module in net.modules())}
  if is_map:
    golden["loss"] = "class_loss"
  if name in kTextNets:
    golden["pad"] = net.pad
  if name == "adapted":
    lora = dict(kAdapters)
    golden["lora"] = {"alpha": lora.pop("lora_alpha"), "targets": lora.pop("target_modules"), **lora}
  for key, f64, f32 in (("loss", loss64, loss32), ("evaluation_loss", evaluation(copy.deepcopy(net).double(), doubled(x), labels), evaluation(copy.deepcopy(net), x, labels))):
    golden[key + "_f64"] = f64
    golden[key.replace("_loss", "") + "_tolerance"] = max(1e-5 * abs(f64), 10 * abs(f64 - f32))
  golden["bounds"] = bounds
  return net, x, labels, exact, golden


def input_names(net, x):
  return ["x"] if x[0].is_floating_point() else input_names_of(net)[:len(x)]


def export(net, x, path, dynamo, optimize=True):
  names, is_text = input_names(net, x), not x[0].is_floating_point()
  shared = dict(input_names=names, opset_version=18 if dynamo else 17)
  if dynamo:
    batch = torch.export.Dim("batch")
    torch.onnx.export(net, x, path, dynamo=True, external_data=False, optimize=optimize, dynamic_shapes=tuple({0: batch} for _ in x), **shared)
  else:
    mode = torch.onnx.TrainingMode.EVAL if is_text else torch.onnx.TrainingMode.TRAINING
    torch.onnx.export(net, x, path, dynamo=False, do_constant_folding=False, training=mode, dynamic_axes={name: {0: "batch"} for name in names}, **shared)
  model = onnx.load(path)  # removes the paths of this machine's sources from each node
  del model.metadata_props[:], model.graph.metadata_props[:], model.graph.value_info[:]
  for node in model.graph.node:
    del node.metadata_props[:]
    node.doc_string = ""
  onnx.save(model, path)


def save_program(net, x, path):
  batch = torch.export.Dim("batch", min=2, max=4096)
  program = torch.export.export(net, x, dynamic_shapes=tuple({0: batch} for _ in x))
  for module in program.graph_module.modules():  # no_grad blocks are modules of their own
    for node in module.graph.nodes:
      node.meta.pop("stack_trace", None)
  torch.export.save(program, path)


def make(name, folder):
  seed = 0
  found = None
  while found is None:
    seed += 1
    found = attempt(name, seed)
    if seed > 400:
      raise SystemExit(f"{name}: no seed keeps to the bounds")
  net, x, labels, exact, golden = found
  if name == "adapted":
    net.save_pretrained(os.path.join(folder, name))
    os.remove(os.path.join(folder, name, "README.md"))
    net = net.unload()
  if name not in kProgramsAlone:
    for dynamo in (False,) if name in kOlderAlone else (False, True):
      export(copy.deepcopy(net), x, os.path.join(folder, f"{name}.{'new' if dynamo else 'old'}.onnx"), dynamo)
  if name == "resnet":
    export(copy.deepcopy(net), x, os.path.join(folder, name + ".unfolded.onnx"), True, False)
  save_program(copy.deepcopy(net), x[:1] if name in kLanguageNets else x, os.path.join(folder, name + ".pt2"))
  tensors = {"d(" + key + ")": value.float() for key, value in exact.items()}
  labels = labels.masked_fill(labels == kNoLabel, kNoByte).to(torch.uint8) if "loss" in golden else labels.int()
  by_name = dict(zip(input_names(net, x), x))
  read = {"x": x[0]} if x[0].is_floating_point() else {"tokens": by_name["input_ids"].int()}
  if "token_type_ids" in by_name:
    read["types"] = by_name["token_type_ids"].int()
  save_file({**tensors, **read, "labels": labels}, os.path.join(folder, name + ".safetensors"))
  with torch.no_grad():
    outputs = copy.deepcopy(net).eval()(*x).contiguous()
  save_file({**by_name, "outputs": outputs}, os.path.join(folder, name + ".outputs.safetensors"))
  with open(os.path.join(folder, name + ".json"), "w") as file:
    file.write(json.dumps(golden, indent=1) + "\n")
  print(f"{name}: seed {seed}, loss {golden['loss_f64']:.6f}", flush=True)


def main():
  folder = sys.argv[1] if len(sys.argv) > 1 else kFolder
  os.makedirs(folder, exist_ok=True)
  for name in sys.argv[2:] or kNets:
    make(name, folder)


if __name__ == "__main__":
  main()
