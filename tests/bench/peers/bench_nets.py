"""Popular nets with random weights in PyTorch: a table, a batch for each, and their files of
torch's exporters.

nets_bench.py imports, trains and times each of them next to PyTorch. A net is a row of NETS; the
defaults of a row describe a classifier of images for 1,000 classes. Needs torch, torchvision, timm,
transformers, onnx and onnxscript from PyPI.
"""
import copy
import dataclasses
import typing

import torch
from torch import nn
from torch.nn import functional

NOBODY = 255  # label of a pixel without a class, in a file of u8 labels


class Conv(nn.Sequential):
  """Convolution, batch-norm, SiLU."""

  def __init__(self, inputs, outputs, kernel=1, stride=1):
    super().__init__(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU())


class Csp(nn.Module):
  """YOLOv8's C2f: a split, blocks of two convolutions in series, and a concatenation of all
  results."""

  def __init__(self, inputs, outputs, blocks, adds):
    super().__init__()
    self.half, self.adds = outputs // 2, adds
    self.first, self.last = Conv(inputs, outputs), Conv((2 + blocks) * self.half, outputs)
    self.blocks = nn.ModuleList([nn.Sequential(Conv(self.half, self.half, 3), Conv(self.half, self.half, 3)) for _ in range(blocks)])

  def forward(self, x):
    halves = self.first(x).chunk(2, 1)
    parts = [halves[0], halves[1]]
    for block in self.blocks:
      parts.append(parts[-1] + block(parts[-1]) if self.adds else block(parts[-1]))
    return self.last(torch.cat(parts, 1))


class Sppf(nn.Module):
  """YOLOv8's SPPF: three max pools in series, concatenated with their input."""

  def __init__(self, channels):
    super().__init__()
    self.first, self.last = Conv(channels, channels // 2), Conv(2 * channels, channels)

  def forward(self, x):
    parts = [self.first(x)]
    for _ in range(3):
      parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
    return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
  """YOLOv8n's backbone and neck by its published table of layers. Its three maps end in one linear
  layer, so that there is a loss."""

  def __init__(self, classes=1000):
    super().__init__()
    self.to3 = nn.Sequential(Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), Csp(32, 32, 1, True), Conv(32, 64, 3, 2), Csp(64, 64, 2, True))
    self.to4 = nn.Sequential(Conv(64, 128, 3, 2), Csp(128, 128, 2, True))
    self.to5 = nn.Sequential(Conv(128, 256, 3, 2), Csp(256, 256, 1, True), Sppf(256))
    self.up4, self.up3 = Csp(384, 128, 1, False), Csp(192, 64, 1, False)
    self.down4, self.out4, self.down5, self.out5 = Conv(64, 64, 3, 2), Csp(192, 128, 1, False), Conv(128, 128, 3, 2), Csp(384, 256, 1, False)
    self.head = nn.Linear(64 + 128 + 256, classes)

  def forward(self, x):
    c3 = self.to3(x)
    c4 = self.to4(c3)
    c5 = self.to5(c4)
    u4 = self.up4(torch.cat([functional.interpolate(c5, scale_factor=2.0, mode="nearest"), c4], 1))
    p3 = self.up3(torch.cat([functional.interpolate(u4, scale_factor=2.0, mode="nearest"), c3], 1))
    p4 = self.out4(torch.cat([self.down4(p3), u4], 1))
    p5 = self.out5(torch.cat([self.down5(p4), c5], 1))
    return self.head(torch.cat([p.mean((2, 3)) for p in (p3, p4, p5)], 1))


class Twice(nn.Sequential):
  """Two convolutions of 3 x 3, each with batch-norm and ReLU."""

  def __init__(self, inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
      layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    super().__init__(*layers)


class Unet(nn.Module):
  """The U-Net of Ronneberger et al. with four levels, padding and transposed convolutions: one
  class for each pixel."""

  def __init__(self, width=32, classes=21):
    super().__init__()
    widths = [width << level for level in range(5)]
    self.down = nn.ModuleList([Twice(a, b) for a, b in zip([3] + widths, widths)])
    self.widen = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:4])])
    self.up = nn.ModuleList([Twice(2 * w, w) for w in reversed(widths[:4])])
    self.head = nn.Conv2d(width, classes, 1)

  def forward(self, x):
    kept = [self.down[0](x)]
    for layer in self.down[1:]:
      kept.append(layer(functional.max_pool2d(kept[-1], 2)))
    x = kept.pop()
    for widen, up in zip(self.widen, self.up):
      x = up(torch.cat([kept.pop(), widen(x)], 1))
    return self.head(x)


def vision(name):
  def make():
    import torchvision
    return getattr(torchvision.models, name)()
  return make


def timm_net(name, **options):
  def make():
    import timm
    return timm.create_model(name, num_classes=1000, **options)
  return make


TEXT, VOCABULARY, TOPICS = 128, 30522, 5  # tokens of a text, entries of the vocabulary, classes


class Sentences(nn.Module):
  """MiniLM-L6: BERT with six layers, and the mean over a text's tokens without padding."""

  def __init__(self):
    import transformers
    super().__init__()
    sizes = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    self.bert = transformers.BertModel(transformers.BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), add_pooling_layer=False)
    self.head = nn.Linear(384, TOPICS)

  def forward(self, input_ids, attention_mask):
    y = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    mask = attention_mask.unsqueeze(-1).to(y.dtype)
    return self.head((y * mask).sum(1) / mask.sum(1).clamp(min=1e-9))


class DistilBert(nn.Module):
  """transformers' DistilBERT classifier, at its default sizes."""

  def __init__(self):
    import transformers
    super().__init__()
    config = transformers.DistilBertConfig(dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=TOPICS)
    self.net = transformers.DistilBertForSequenceClassification(config)

  def forward(self, input_ids, attention_mask):
    return self.net(input_ids=input_ids, attention_mask=attention_mask).logits


def texts(batch):
  """Returns token ids and their mask, and labels. Half to all of a text's tokens are no padding."""
  lengths = torch.randint(TEXT // 2, TEXT + 1, (batch, 1))
  mask = (torch.arange(TEXT) < lengths).long()
  return (torch.randint(1, VOCABULARY, (batch, TEXT)) * mask, mask), torch.randint(0, TOPICS, (batch,))


def images(classes=1000, size=224):
  return lambda batch: (torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,)))


def maps(classes, size=224):
  def draw(batch):
    labels = torch.randint(0, classes, (batch, size, size), dtype=torch.uint8)
    labels[torch.rand(labels.shape) < 0.1] = NOBODY
    return torch.randn(batch, 3, size, size), labels
  return draw


@dataclasses.dataclass
class Net:
  title: str
  make: typing.Callable
  batch: int = 16  # in the steps that are timed
  draw: typing.Callable = images()  # draws a batch: the net's input, one tensor or several, and labels
  inputs: tuple = ("x",)  # names of the inputs
  loss: str = ""  # `--loss` of reprise import; "" for a classifier's


NETS = {
    "mobilenet_v2": Net("MobileNetV2", vision("mobilenet_v2")),
    "mobilenet_v3": Net("MobileNetV3-L", vision("mobilenet_v3_large")),
    "efficientnet": Net("EfficientNet-B0", vision("efficientnet_b0")),
    "convnext": Net("ConvNeXt-T", vision("convnext_tiny"), 8),
    "vit": Net("ViT-S/16", timm_net("vit_small_patch16_224"), 8),
    "dinov2": Net("DINOv2-S/14", timm_net("vit_small_patch14_dinov2", img_size=224), 8),
    "unet": Net("U-Net, 4 levels of 32", Unet, 8, maps(21), loss="class"),
    "resnet50": Net("ResNet-50", vision("resnet50")),
    "yolov8n": Net("YOLOv8n, backbone and neck", Yolo),
    "distilbert": Net("DistilBERT, 128 tokens", DistilBert, 8, texts, ("input_ids", "attention_mask")),
    "minilm": Net("MiniLM-L6, 128 tokens", Sentences, 16, texts, ("input_ids", "attention_mask")),
}
EXPORTERS = ("old.onnx", "new.onnx", "pt2")  # torch.onnx.export with dynamo=False and True, and torch.export.save


def inputs_of(x):
  return x if isinstance(x, tuple) else (x,)


def make_net(name):
  """Returns the net in training mode without random layers. No two vectors are equal, and the
  running statistics of batch-norms come from a batch."""
  torch.manual_seed(1)
  net = NETS[name].make().train()
  for module in net.modules():
    for key in ("p", "drop_prob"):  # dropout's and stochastic depth's
      if isinstance(getattr(module, key, None), float):
        setattr(module, key, 0.0)
  with torch.no_grad():
    for key, parameter in net.named_parameters():
      if parameter.dim() == 1 and key.endswith("bias"):
        parameter.normal_(0, 0.1)
      elif parameter.dim() == 1 or parameter.shape[0] == parameter.numel():
        parameter.uniform_(0.5, 1.5)
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
      norm.momentum = 1.0
    net(*inputs_of(NETS[name].draw(4)[0]))
    for norm in norms:
      norm.momentum = 0.1
  return net


def has_batch_norm(net):
  return any(isinstance(module, nn.BatchNorm2d) for module in net.modules())


def folded(net):
  """Returns the net as the newer exporter writes it: batch-norms are folded into the convolutions
  before them."""
  from torch.fx.experimental.optimization import fuse
  return fuse(copy.deepcopy(net).eval()).requires_grad_(True)


def export(net, x, path, exporter, names):
  net, x = copy.deepcopy(net).train(), inputs_of(x)  # the export changes running statistics
  batch = lambda **limits: tuple({0: dimension} for dimension in [torch.export.Dim("batch", **limits)] * len(x))
  if exporter == "old.onnx":
    torch.onnx.export(net, x, path, dynamo=False, input_names=list(names), opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={name: {0: "batch"} for name in names})
  elif exporter == "new.onnx":
    torch.onnx.export(net, x, path, dynamo=True, external_data=False, input_names=list(names), opset_version=18, dynamic_shapes=batch())
  else:
    torch.export.save(torch.export.export(net, x, dynamic_shapes=batch(min=2, max=4096)), path)


def loss_of(net, x, labels):
  labels = labels.long()
  return functional.cross_entropy(net(*inputs_of(x)), labels, ignore_index=NOBODY if labels.dim() > 1 else -100)
