# Trains a case of lm_cases.py twice: with transformers and peft in f32, and with decoders.py in
# f64. The golden contains both results. This file defines a step of a language model: every label
# of the step has the same weight, in whatever micro-batch it is.
import json
import math
import os

import torch
from torch.nn import functional

from decoders import make_decoder, merged, mutants_of
from lm_cases import kIgnored
from recipe_file import RecipeError, read_lr_schedule, read_optimizer
from safetensors_file import read_safetensors
from training import digits, learning_rate, matches, relative, tolerances

kTimes = 5  # allowed distance of a gradient from f64, as a multiple of that of PyTorch's own f32


# ---- two implementations: .parameters by name, and .logits(batch) ----------------------------------------------------------------

def tensors_of(batch):
  return {key: torch.tensor(value) for key, value in batch.items()}


def mask_of(seen):
  """Returns the tensor [B,1,T,T] to add to the scores, for the positions that are seen or not."""
  return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]


class Transformers:
  """transformers' own model, with peft's adapter, in f32 with eager attention."""

  def __init__(self, folder, adapter=None):
    from transformers import AutoModelForCausalLM
    self.model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    if adapter:
      from peft import PeftModel
      self.model = PeftModel.from_pretrained(self.model, adapter, is_trainable=True)
    self.model.train()
    trained = {name: tensor for name, tensor in self.model.named_parameters() if tensor.requires_grad}
    self.parameters = {name.removeprefix("base_model.model.").replace(".default.", ".").replace("_vector.weight", "_vector"): tensor
                       for name, tensor in trained.items()}

  def logits(self, batch):
    more = {}
    if "document_start" in batch:
      start, place = batch["document_start"], torch.arange(batch["tokens"].shape[1])
      seen = (place[None, None, :] <= place[None, :, None]) & (place[None, None, :] >= start[:, :, None])
      config = self.model.config
      masks = {"full_attention": mask_of(seen)}
      if getattr(config, "sliding_window", None):
        masks["sliding_attention"] = mask_of(seen & (place[None, None, :] > place[None, :, None] - config.sliding_window))
      by_type = config.model_type.startswith("gemma")  # the others use one mask for all layers
      more = {"position_ids": place - start, "attention_mask": masks if by_type else masks.get("sliding_attention", masks["full_attention"])}
    return self.model(input_ids=batch["tokens"], use_cache=False, **more).logits


class Reference:
  """decoders.py with leaves of one float type; an adapter is added to the weights, as a function of
  its A and B."""

  def __init__(self, config, weights, adapter=None, scale=1.0, dtype=torch.float64, mutant=None):
    def leaves(tensors, trained):
      return {name: tensor.to(dtype).clone().requires_grad_(trained) for name, tensor in tensors.items()}
    self.config, self.scale, self.mutant = config, scale, mutant
    self.weights, self.adapter = leaves(weights, adapter is None), leaves(adapter or {}, True)
    self.parameters = self.adapter or self.weights

  def logits(self, batch):
    weights = merged(self.weights, self.adapter, self.scale) if self.adapter else self.weights
    return make_decoder(self.config, weights, self.mutant).logits(batch["tokens"], batch.get("document_start"))


# ---- training --------------------------------------------------------------------------------------------------------------------

def loss_sum(run, batch):
  logits = run.logits(batch)
  return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch["labels"].reshape(-1), ignore_index=kIgnored, reduction="sum")


def backward_of_step(run, batches):
  """Computes the gradients of one step and returns its loss, both as means over all labels of its
  micro-batches."""
  labelled = sum((batch["labels"] != kIgnored).sum().item() for batch in batches)
  total = 0.0
  for batch in batches:
    loss = loss_sum(run, batch) / labelled
    loss.backward()
    total += loss.item()
  return total


def filled(recipe):
  """Returns the recipe with all fields of its optimizer and lr_schedule."""
  recipe = {"lr_schedule": {}, "clip_norm": None, **recipe}
  return {**recipe, "optimizer": read_optimizer(recipe["name"], recipe["optimizer"]), "lr_schedule": read_lr_schedule(recipe["name"], recipe)}


def make_optimizer(options, parameters, fused=None):
  groups = [{"params": [tensor for name, tensor in parameters.items() if matches(name, options["no_decay"]) != decays],
             "weight_decay": options["weight_decay"] if decays else 0.0} for decays in (True, False)]
  return torch.optim.AdamW([group for group in groups if group["params"]], lr=options["lr"], betas=tuple(options["betas"]), eps=options["eps"],
                           fused=fused)


def train(run, recipe, batches, steps):
  """Returns {"loss", "grad_norm", "gradients" of the first step, "norms" after the last}."""
  optimizer = make_optimizer(recipe["optimizer"], run.parameters)
  result = {"loss": [], "grad_norm": []}
  for step in range(steps):
    optimizer.zero_grad(set_to_none=True)
    for group in optimizer.param_groups:
      group["lr"] = learning_rate(recipe, step)
    first = step * recipe["accumulate"]
    result["loss"].append(backward_of_step(run, [tensors_of(batch) for batch in batches[first:first + recipe["accumulate"]]]))
    if step == 0:
      result["gradients"] = {name: tensor.grad.double().clone() for name, tensor in run.parameters.items()}
    norm = torch.nn.utils.clip_grad_norm_(list(run.parameters.values()), recipe["clip_norm"] or math.inf)
    result["grad_norm"].append(norm.item())
    optimizer.step()
  result["norms"] = {name: tensor.detach().double().norm().item() for name, tensor in run.parameters.items()}
  return result


def difference(gradients, reference):
  """Returns the relative distance in the 2-norm, by tensor."""
  return {name: ((gradients[name] - right).norm() / right.norm()).item() for name, right in reference.items()}


# ---- one case --------------------------------------------------------------------------------------------------------------------

def read_model(folder):
  """Returns (config, weights as f32 tensors) of a Hugging Face folder. safetensors.torch reads the
  files, because safetensors_file.py reads no bf16."""
  from safetensors.torch import load_file
  with open(os.path.join(folder, "config.json")) as file:
    config = json.load(file)
  weights = {}
  for name in sorted(os.listdir(folder)):
    if name.endswith(".safetensors"):
      weights.update({key: tensor.float() for key, tensor in load_file(os.path.join(folder, name)).items()})
  return config, weights


def read_adapter(folder):
  """Returns the tensors of peft's file, by the names of the model's layers."""
  tensors = read_safetensors(os.path.join(folder, "adapter_model.safetensors"))
  return {name.removeprefix("base_model.model."): torch.from_numpy(array) for name, array in tensors.items()}


def lora_scale(lora):
  return lora["alpha"] / (math.sqrt(lora["r"]) if lora["rslora"] else lora["r"])


class Case:
  """A case with its folders' files, ready to be trained; `batches` are the golden's."""

  def __init__(self, recipe, model_folder, adapter_folder, batches):
    self.recipe, self.model_folder, self.adapter_folder, self.batches = filled(recipe), model_folder, adapter_folder, batches
    self.config, self.weights = read_model(model_folder)
    self.adapter = read_adapter(adapter_folder) if adapter_folder else None
    self.scale = lora_scale(recipe["lora"]) if adapter_folder else 1.0

  def reference(self, dtype=torch.float64, mutant=None, nudge=None):
    def nudged(tensors):
      return {name: tensor * (1 + 1.2e-7 * (2 * torch.rand(tensor.shape, generator=nudge) - 1)) for name, tensor in tensors.items()}
    weights, adapter = self.weights, self.adapter
    if nudge:
      weights, adapter = nudged(weights), adapter and nudged(adapter)
    return Reference(self.config, weights, adapter, self.scale, dtype, mutant)

  def train(self, run, steps=None):
    return train(run, self.recipe, self.batches, steps or self.recipe["steps"])

  def first_step(self, run, batches=None):
    """Returns (loss, gradients) of the first step."""
    loss = backward_of_step(run, [tensors_of(batch) for batch in batches or self.batches[:self.recipe["accumulate"]]])
    unread = torch.zeros(())  # the gradient of a weight that a mutant does not use
    return loss, {name: (unread if tensor.grad is None else tensor.grad).double() for name, tensor in run.parameters.items()}


def make_golden(case):
  """Returns (golden, f64 gradients of the first step)."""
  torch.set_num_threads(1)
  f32, f64 = case.train(Transformers(case.model_folder, case.adapter_folder)), case.train(case.reference())
  own = difference(f32["gradients"], f64["gradients"])
  if max(own.values()) > 2e-5:
    name = max(own, key=own.get)
    raise RecipeError(f"{name}: the gradients of transformers in f32 and of decoders.py in f64 are {own[name]:.1e} apart: not the same model")
  steps = case.recipe["steps"]
  golden = {"steps": steps, "lr": [learning_rate(case.recipe, step) for step in range(steps)],
            "loss_f32": f32["loss"], "loss_f64": f64["loss"], "tolerance": tolerances(f32["loss"], f64["loss"]),
            "grad_norm_f32": f32["grad_norm"], "grad_norm_f64": f64["grad_norm"],
            "gradients": {name: {"norm_f64": right.norm().item(), "error_f32": own[name], "bound": kTimes * own[name]}
                          for name, right in f64["gradients"].items()},
            "final_norms_f32": f32["norms"], "final_norms_f64": f64["norms"]}
  return digits(golden), f64["gradients"]


# ---- how sensitive a golden is -----------------------------------------------------------------------------------------------------

def documents_apart(case):
  """Returns the batches of the first step with every document as a sample of its own, unpacked."""
  apart = []
  for batch in case.batches[:case.recipe["accumulate"]]:
    for tokens, labels, starts in zip(batch["tokens"], batch["labels"], batch["document_start"]):
      for start in sorted(set(starts)):
        length = starts.count(start)
        apart.append({"tokens": [tokens[start:start + length]], "labels": [labels[start:start + length]]})
  return apart


def check_documents(case, golden, gradients):
  """Returns the largest relative difference, in f64, between packed documents and separate ones
  weighted by their tokens."""
  loss, other = case.first_step(case.reference(), documents_apart(case))
  return max(relative(loss, golden["loss_f64"][0]), *difference(other, gradients).values())


def check_mutants(case, golden, gradients):
  """Returns mutant -> (loss error in tolerances, worst gradient error in bounds, share of tensors
  out of bound) of the first step, in f64."""
  found = {}
  for mutant in mutants_of(case.config, "document_start" in case.batches[0]):
    loss, wrong = case.first_step(case.reference(mutant=mutant))
    errors = [error / golden["gradients"][name]["bound"] for name, error in difference(wrong, gradients).items()]
    found[mutant] = (relative(loss, golden["loss_f64"][0]) / golden["tolerance"][0], max(errors), sum(e > 1 for e in errors) / len(errors))
  return found


def probe(case, golden, gradients, count):
  """Runs other f32 programs: decoders.py in f32, from weights nudged by one ulp (the first run from
  unchanged weights). Returns (worst loss error in tolerances, worst gradient error in bounds, its
  tensor)."""
  worst_loss, worst_gradient, where = 0.0, 0.0, ""
  for seed in range(count):
    nudge = torch.Generator().manual_seed(seed) if seed else None
    run = case.train(case.reference(dtype=torch.float32, nudge=nudge))
    worst_loss = max([worst_loss] + [relative(a, b) / t for a, b, t in zip(run["loss"], golden["loss_f64"], golden["tolerance"])])
    for name, error in difference(run["gradients"], gradients).items():
      if error / golden["gradients"][name]["bound"] > worst_gradient:
        worst_gradient, where = error / golden["gradients"][name]["bound"], name
  return worst_loss, worst_gradient, where

