"""Trains MobileNetV2's shape on Fashion-MNIST from scratch, imported from torch's export, next to
PyTorch from the same weights.

Reason: an imported net must learn, not only step. Width 1.0, ten classes, the first stride 1; its
first convolution pads the images of 28 x 28 to 32 x 32 and by one more. Optimizer, schedule and the
order of samples are those of the recipe on both sides.
"""
import json
import subprocess
import sys

import torch_peer

RECIPE = {"data": {"kind": "idx", "path": "/usr/share/datasets/fashion-mnist", "mean": 0.286, "std": 0.353, "shuffle": False}, "batch": 64,
          "steps": 400, "evaluate_every": 400, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
          "lr_schedule": {"kind": "cosine", "warmup_steps": 40}}


def make_net(seed):
  import torch
  import torchvision
  torch.manual_seed(seed)
  net = torchvision.models.mobilenet_v2(num_classes=10, dropout=0.0)
  net.features[0][0] = torch.nn.Conv2d(1, 32, 3, 1, 3, bias=False)
  torch.nn.init.kaiming_normal_(net.features[0][0].weight, mode="fan_out")
  return net.train()


def train_peer(net, threads):
  """Returns the losses, then loss and accuracy of the test set."""
  import torch
  sys.path.insert(0, str(torch_peer.ROOT / "tests" / "parity"))
  import batches
  import training
  from recipe_file import kOptimizers
  torch.set_num_threads(threads)
  recipe = {"accumulate": 1, "clip_norm": None, "freeze": [], **RECIPE, "model": {"image": [28, 28, 1], "classes": 10}}
  recipe["optimizer"] = {"no_decay": [], **kOptimizers["sgd"], **RECIPE["optimizer"]}
  recipe["lr_schedule"] = {**RECIPE["lr_schedule"], "steps": RECIPE["steps"]}
  net = net.to(memory_format=torch.channels_last)
  optimizer, samples = training.make_optimizer(recipe, net), batches.load_samples(recipe)
  losses = [training.train_step(recipe, net, optimizer, samples, step, "f32")[0] for step in range(RECIPE["steps"])]
  loss, accuracy = training.evaluate(recipe, net, batches.load_samples(recipe, evaluation=True), "f32")
  return {"losses": losses, "loss": loss, "accuracy": accuracy}


def train_ours(recipe, folder, threads):
  program, log = torch_peer.build_program(recipe, folder), folder / "task.jsonl"
  log.unlink(missing_ok=True)
  done = subprocess.run([program, "--log", log, "--threads", str(threads), "--quiet"], capture_output=True, text=True)
  if done.returncode != 0:
    sys.exit(f"nets_task: {done.stderr}")
  lines = [json.loads(line) for line in log.read_text().splitlines()]
  steps, end = [line for line in lines if "loss" in line], [line for line in lines if "eval_loss" in line][-1]
  return {"losses": [step["loss"] for step in steps], "loss": end["eval_loss"], "accuracy": end["accuracy"],
          "bytes": steps[-1]["measured_bytes"]}


def task(seed, folder, import_file, threads):
  """Runs both trainings from the weights of one seed. `import_file(name)` returns the recipe of the
  older exporter's file of that name."""
  import torch
  import bench_nets
  net = make_net(seed)
  bench_nets.export(net, torch.randn(2, 1, 28, 28), folder / f"task{seed}.old.onnx", "old.onnx")
  recipe = {**import_file(f"task{seed}"), **RECIPE, "budget": "128MiB"}
  return {"ours": train_ours(recipe, folder, threads), "torch": train_peer(net, threads)}
