# Trains a net for a few steps in f32 and in f64 and records the losses as a golden. With torch's
# own optimizers it defines a step of training (tools/FILES.md, "Optimizers").
import fnmatch
import math

import numpy as np
import torch
from torch.nn import functional

from batches import load_samples, micro_batch_indices
from nets import jitter_vectors, make_net
from recipe_file import RecipeError, require

kFloats = {"f32": (torch.float32, np.float32), "f64": (torch.float64, np.float64)}


def make_weights(recipe, jitter):
  """Returns initial weights as name -> numpy array, drawn by torch's generator from the recipe's
  seed."""
  torch.manual_seed(recipe["seed"])
  net = make_net(recipe["model"])
  net.initialise()
  if jitter:
    jitter_vectors(net, jitter)
  return {name: tensor.numpy() for name, tensor in net.state_dict().items()}


def load_weights(net, path, weights):
  """Fills the net; accepts GPT-2 names with or without "transformer."; BN statistics may be
  absent."""
  wanted = net.state_dict()
  prefix = "transformer." if "transformer.wte.weight" in wanted else ""
  found = {name if name in wanted else prefix + name: array for name, array in weights.items()}
  for name, tensor in wanted.items():
    optional = name.endswith(("running_mean", "running_var", "num_batches_tracked"))
    require(name in found or optional, f"{path}: the tensor {name} is missing")
    if name in found:
      require(tuple(found[name].shape) == tuple(tensor.shape),
              f"{path}: {name} is {tuple(found[name].shape)}; the recipe's net wants {tuple(tensor.shape)}")
      tensor.copy_(torch.from_numpy(np.array(found[name])))


def matches(name, patterns):
  return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def make_optimizer(recipe, net):
  """Returns an optimizer with two groups: with and without weight decay. A frozen parameter is in
  neither."""
  options = recipe["optimizer"]
  groups = {True: [], False: []}
  for name, parameter in net.named_parameters():
    parameter.requires_grad_(not matches(name, recipe["freeze"]))
    if parameter.requires_grad:
      groups[not matches(name, options["no_decay"])].append(parameter)
  require(groups[True] or groups[False], "freeze: nothing is left to train")
  listed = [{"params": group, "weight_decay": options["weight_decay"] if decays else 0.0}
            for decays, group in groups.items() if group]
  if options["name"] == "sgd":
    return torch.optim.SGD(listed, lr=options["lr"], momentum=options["momentum"], nesterov=options["nesterov"])
  return torch.optim.AdamW(listed, lr=options["lr"], betas=tuple(options["betas"]), eps=options["eps"])


def learning_rate(recipe, step):
  """Returns the lr of a step, from 0: a linear ramp (s+1)/warmup_steps, then constant, steps at
  milestones, or half a cosine down to 0."""
  base, schedule = recipe["optimizer"]["lr"], recipe["lr_schedule"]
  warmup = schedule["warmup_steps"]
  if step < warmup:
    return base * (step + 1) / warmup
  if schedule["kind"] == "step":
    return base * schedule["gamma"] ** sum(milestone <= step for milestone in schedule["milestones"])
  if schedule["kind"] == "cosine":
    progress = (step - warmup) / max(1, schedule["steps"] - warmup)
    return base * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
  return base


def loss_of(net, inputs, targets):
  """Returns the sum over the labelled samples or tokens (label -100 is ignored), and the logits."""
  logits = net(inputs)
  logits = logits.reshape(-1, logits.shape[-1])
  return functional.cross_entropy(logits, targets.reshape(-1), ignore_index=-100, reduction="sum"), logits


def take(samples, indices, float_name):
  inputs, targets = samples.take(indices, kFloats[float_name][1])
  return torch.from_numpy(np.array(inputs)), torch.from_numpy(np.array(targets))


def train_step(recipe, net, optimizer, samples, step, float_name):
  """Returns (loss before the update, gradient norm before clipping)."""
  net.train()
  for module in net.modules():  # a norm with a frozen weight normalises as in evaluation
    if isinstance(module, torch.nn.BatchNorm2d) and not module.weight.requires_grad:
      module.eval()
  optimizer.zero_grad(set_to_none=True)
  for group in optimizer.param_groups:
    group["lr"] = learning_rate(recipe, step)
  batches = [take(samples, micro_batch_indices(recipe, samples, step, micro), float_name) for micro in range(recipe["accumulate"])]
  labelled = sum((targets != -100).sum().item() for _, targets in batches)
  total = 0.0
  for batch in batches:
    loss = loss_of(net, *batch)[0] / labelled
    loss.backward()
    total += loss.item()
  trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
  norm = torch.nn.utils.clip_grad_norm_(trained, recipe["clip_norm"] or math.inf)
  optimizer.step()
  return total, norm.item()


@torch.no_grad()
def evaluate(recipe, net, samples, float_name):
  """Returns mean loss and accuracy over every evaluation sample, with BN's running statistics."""
  net.eval()
  loss_sum, right, labelled = 0.0, 0, 0
  for first in range(0, samples.count, recipe["batch"]):
    inputs, targets = take(samples, range(first, min(first + recipe["batch"], samples.count)), float_name)
    loss, logits = loss_of(net, inputs, targets)
    loss_sum += loss.item()
    right += (logits.argmax(dim=1) == targets.reshape(-1)).sum().item()
    labelled += (targets != -100).sum().item()
  return loss_sum / labelled, right / labelled


def train(recipe, steps, weights_path, weights, float_name):
  """Runs one training; returns {"loss", "grad_norm", "eval", "norms"}."""
  net = make_net(recipe["model"]).to(kFloats[float_name][0])
  load_weights(net, weights_path, weights)
  optimizer = make_optimizer(recipe, net)
  samples, every = load_samples(recipe), recipe["evaluate_every"]
  evaluation = load_samples(recipe, evaluation=True) if every else None
  run = {"loss": [], "grad_norm": [], "eval": {}}
  for step in range(steps):
    loss, norm = train_step(recipe, net, optimizer, samples, step, float_name)
    if not math.isfinite(loss):
      raise RecipeError(f"step {step + 1}: the {float_name} loss is {loss}; lower optimizer.lr")
    run["loss"].append(loss)
    run["grad_norm"].append(norm)
    if evaluation and (step + 1) % every == 0:
      run["eval"][step + 1] = evaluate(recipe, net, evaluation, float_name)
  run["norms"] = {name: tensor.double().norm().item() for name, tensor in net.state_dict().items()}
  return run


def relative(a, b):
  return abs(a - b) / max(abs(b), 1e-300)


def tolerances(f32, f64):
  """Returns ten times the difference of torch's own two runs, at least 1e-5 relative."""
  return [max(1e-5, 10 * relative(a, b)) for a, b in zip(f32, f64)]


def digits(value):
  """Returns the value with floats rounded to twelve significant digits, which keeps a golden's diff
  readable."""
  if isinstance(value, dict):
    return {key: digits(item) for key, item in value.items()}
  if isinstance(value, list):
    return [digits(item) for item in value]
  return float(f"{value:.12g}") if isinstance(value, float) else value


def make_golden(recipe, steps, weights_path, weights, threads=1):
  torch.set_num_threads(threads)
  f32, f64 = (train(recipe, steps, weights_path, weights, name) for name in ("f32", "f64"))
  golden = {"recipe": recipe["source"], "steps": steps, "lr": [learning_rate(recipe, step) for step in range(steps)],
            "loss_f32": f32["loss"], "loss_f64": f64["loss"], "tolerance": tolerances(f32["loss"], f64["loss"]),
            "grad_norm_f32": f32["grad_norm"], "grad_norm_f64": f64["grad_norm"]}
  golden["evaluations"] = [
      {"step": step, "eval_loss_f32": f32["eval"][step][0], "eval_loss_f64": f64["eval"][step][0],
       "tolerance": tolerances([f32["eval"][step][0]], [f64["eval"][step][0]])[0], "accuracy": f64["eval"][step][1]}
      for step in f64["eval"]]
  golden["final_norms_f32"], golden["final_norms_f64"] = f32["norms"], f64["norms"]
  return {**digits(golden), "recipe": recipe["source"]}


def probe(recipe, golden, weights_path, weights, count):
  """Trains in f32 from weights nudged by about one ulp. Returns (worst error in tolerances, its
  step from 1). A ReLU or a max pool within rounding of a tie may give either result; no f32 program
  can then meet the tolerance."""
  worst = (0.0, 1)
  for seed in range(count):
    random = np.random.default_rng(seed)
    nudged = {name: (array * (1 + random.uniform(-1.2e-7, 1.2e-7, array.shape))).astype(array.dtype)
              if array.dtype == np.float32 else array for name, array in weights.items()}
    run = train(recipe, golden["steps"], weights_path, nudged, "f32")
    for step, loss in enumerate(run["loss"]):
      worst = max(worst, (relative(loss, golden["loss_f64"][step]) / golden["tolerance"][step], step + 1))
  return worst
