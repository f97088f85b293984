#!/usr/bin/python3
# Makes tests/golden/losses.txt: PyTorch's losses and their gradients for the numbers below. They
# judge the losses of lib/ops/target_loss.h, class_loss.h and pair_loss.h by the functions whose
# names they have. Needs only torch and numpy, as in Debian's python3-torch, and computes in double.
# Dice is its formula as in MONAI's DiceLoss, differentiated by torch.
import os

import numpy as np
import torch

kFile = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "losses.txt")


def numbers(count, seed):
  """Returns `count` floats in [-1, 1): a multiplicative hash of the index."""
  place = np.arange(count, dtype=np.uint64)
  word = (place * np.uint64(2654435761) + np.uint64(seed) * np.uint64(40503)) & np.uint64(0xFFFFFFFF)
  word = ((word ^ (word >> np.uint64(15))) * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
  word ^= word >> np.uint64(13)
  return (word.astype(np.float64) / 2147483648.0 - 1.0).astype(np.float32).astype(np.float64)


def tensor(shape, seed, factor=1.0):
  return torch.from_numpy((numbers(int(np.prod(shape)), seed) * factor).astype(np.float32).astype(np.float64)).reshape(shape)


def dice(x, labels, classes):
  """Returns one minus the coefficient of each sample and class, averaged: x [N,C,P], labels [N,P],
  -100 for none."""
  there = (labels != -100).unsqueeze(1).double()
  p = torch.softmax(x, 1) * there
  wanted = torch.nn.functional.one_hot(labels.clamp(min=0), classes).permute(0, 2, 1).double() * there
  coefficient = (2 * (p * wanted).sum(2) + 1e-5) / (p.sum(2) + wanted.sum(2) + 1e-5)
  share = there.sum((1, 2)) / there.sum()
  return ((1 - coefficient.mean(1)) * share).sum()


def main():
  nn, lines = torch.nn, []

  def add(name, x, loss):
    x = x.clone().requires_grad_(True)
    value = loss(x)
    value.backward()
    lines.append(name + " " + " ".join("%.17g" % n for n in [value.item()] + x.grad.reshape(-1).tolist()))

  x, targets = tensor((7, 5), 1, 3.0), tensor((7, 5), 2, 3.0)
  add("mse", x, lambda x: nn.MSELoss()(x, targets))
  add("l1", x, lambda x: nn.L1Loss()(x, targets))
  add("huber", x, lambda x: nn.HuberLoss(delta=0.75)(x, targets))
  truths, weights = (targets > 0).double(), tensor((5,), 3).abs() + 0.5
  add("binary", x, lambda x: nn.BCEWithLogitsLoss(pos_weight=weights)(x, truths))
  labels = torch.tensor([(3 * i) % 5 if i % 3 else -100 for i in range(7)])
  add("classes", x, lambda x: nn.CrossEntropyLoss()(x, labels))
  add("classes.weighted", x, lambda x: nn.CrossEntropyLoss(weight=weights)(x, labels))
  add("classes.smoothed", x, lambda x: nn.CrossEntropyLoss(weight=weights, label_smoothing=0.125)(x, labels))
  # Maps have their channels last, as in Reprise: [N,P,C].
  maps = tensor((3, 8, 4), 4, 2.0)
  places = torch.tensor([[(i * i + n) % 4 if (i + n) % 5 else -100 for i in range(8)] for n in range(3)])
  weights4 = tensor((4,), 5).abs() + 0.5
  entropy = nn.CrossEntropyLoss(weight=weights4)
  add("maps", maps, lambda x: entropy(x.permute(0, 2, 1), places))
  add("maps.dice", maps, lambda x: dice(x.permute(0, 2, 1), places, 4))
  add("maps.both", maps, lambda x: 0.75 * entropy(x.permute(0, 2, 1), places) + 0.25 * dice(x.permute(0, 2, 1), places, 4))
  # The two vectors of a pair are neighbours: [2B,D]. The fourth pair has no target.
  vectors, wanted = tensor((12, 9), 6, 2.0), torch.tensor([1.0, -1.0, 1.0, float("nan"), -1.0, 1.0], dtype=torch.float64)
  likeness, there = tensor((6,), 7), ~torch.isnan(wanted)

  def sides(x):
    return x[0::2][there], x[1::2][there]

  def logits(x, temperature):
    first, second = (nn.functional.normalize(side, dim=1) for side in sides(x))
    return first @ second.T / temperature

  own = torch.arange(int(there.sum()))
  contrast = nn.functional.cross_entropy
  add("pairs.infonce", vectors, lambda x: contrast(logits(x, 0.25), own))
  add("pairs.symmetric", vectors, lambda x: (contrast(logits(x, 0.5), own) + contrast(logits(x, 0.5).T, own)) / 2)
  add("pairs.cosine", vectors, lambda x: nn.functional.cosine_embedding_loss(*sides(x), wanted[there], margin=0.125))
  add("pairs.similarity", vectors, lambda x: nn.functional.mse_loss(nn.functional.cosine_similarity(*sides(x)), likeness[there]))
  with open(kFile, "w") as file:
    file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
  main()
