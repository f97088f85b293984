# Reads a recipe (tools/FILES.md, "The recipe"), adds the defaults of torch, torchvision and Hugging
# Face, and refuses whatever has no parity. nets.py, batches.py and training.py use these checked
# values.
import json
import os

kKeys = {"name", "model", "data", "batch", "sequence", "accumulate", "dtype", "optimizer", "lr_schedule", "clip_norm",
         "gradient_release", "freeze", "lora", "parallel", "evaluate_every", "evaluate_batches", "init", "loss", "steps", "epochs", "schedule", "budget",
         "budgets", "feature_map_budget", "seed", "backend", "card", "math", "$schema", "written_by"}
kOptimizers = {
    "sgd": {"lr": 1e-3, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    "adamw": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 1e-2}}
kResNet = {"block": "basic", "units": None, "width": 16, "stem": "cifar", "classes": 10, "image": None}
kGpt2 = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
         "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
         "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "scale_attn_weights": True,
         "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True}
kActivations = ("gelu_new", "gelu", "relu")
kDataKinds = ("idx", "tensors", "tokens", "text")


class RecipeError(Exception):
  pass


def require(condition, message):
  if not condition:
    raise RecipeError(message)


def read_json(path):
  try:
    with open(path) as file:
      return json.load(file)
  except OSError as error:
    raise RecipeError(f"{path}: {error.strerror}")
  except ValueError as error:
    raise RecipeError(f"{path}: not JSON: {error}")


def read_recipe(path):
  """Returns the recipe with every default, plus "folder" (its own) and "source" (as written)."""
  source = read_json(path)
  require(isinstance(source, dict), f"{path}: a recipe is one JSON object")
  unknown = sorted(set(source) - kKeys)
  require(not unknown, f"{path}: unknown field '{''.join(unknown[:1])}'; the fields are {', '.join(sorted(kKeys))}")
  for key in ("model", "data", "optimizer"):
    require(isinstance(source.get(key), dict), f"{path}: {key}: must be an object")
  recipe = {"name": "recipe", "batch": 1, "accumulate": 1, "dtype": "f32", "clip_norm": None, "freeze": [], "seed": 0,
            "evaluate_every": 0, "steps": None, **source,
            "source": source, "folder": os.path.dirname(os.path.abspath(path))}
  require(recipe["dtype"] == "f32", f"{path}: dtype: parity is defined for f32 only; set \"dtype\": \"f32\"")
  for key in ("lora", "loss", "evaluate_batches", "init", "epochs"):
    require(not recipe.get(key), f"{path}: {key}: not supported here; remove the field")
  recipe["model"] = read_model(path, recipe)
  recipe["data"] = read_data(path, recipe)
  recipe["optimizer"] = read_optimizer(path, source["optimizer"])
  recipe["lr_schedule"] = read_lr_schedule(path, recipe)
  return recipe


def read_model(path, recipe):
  model = dict(recipe["model"])
  require(not model.get("new_tokens"), f"{path}: model.new_tokens: not supported here; remove the field")
  if "huggingface" in model:
    folder = os.path.join(recipe["folder"], model["huggingface"])
    config = read_json(os.path.join(folder, "config.json"))
    model = {**config, "family": config.get("model_type"), "weights": os.path.join(folder, "model.safetensors")}
  family = model.get("family")
  require(family in ("resnet", "gpt2"), f"{path}: model.family: '{family}' is not supported here; use resnet or gpt2")
  if family == "resnet":
    return check_resnet(path, {**kResNet, **model})
  return check_gpt2(path, {**kGpt2, **model}, recipe)


def check_resnet(path, model):
  unknown = sorted(set(model) - set(kResNet) - {"family"})
  require(not unknown, f"{path}: model.{unknown[0] if unknown else ''}: unknown field of a resnet")
  require(model["block"] in ("basic", "bottleneck"), f"{path}: model.block: must be basic or bottleneck")
  require(model["stem"] in ("cifar", "imagenet"), f"{path}: model.stem: must be cifar or imagenet")
  require(isinstance(model["units"], list) and len(model["units"]) in (3, 4),
          f"{path}: model.units: must list three or four stages")
  require(isinstance(model["image"], list) and len(model["image"]) == 3, f"{path}: model.image: must be [H, W, C]")
  return model


def check_gpt2(path, model, recipe):
  for field in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
    require(model[field] == 0, f"{path}: model.{field} is {model[field]} (Hugging Face's default is 0.1): "
            "torch draws other dropout masks; set it to 0")
  require(model["tie_word_embeddings"], f"{path}: model.tie_word_embeddings: the head is tied; set it to true")
  require(model["activation_function"] in kActivations,
          f"{path}: model.activation_function: must be one of {', '.join(kActivations)}")
  require(model["n_embd"] % model["n_head"] == 0, f"{path}: model.n_embd: must be a multiple of n_head")
  model["n_inner"] = model["n_inner"] or 4 * model["n_embd"]
  model["sequence"] = recipe.get("sequence", model["n_positions"])
  require(model["sequence"] <= model["n_positions"],
          f"{path}: sequence: {model['sequence']} is longer than model.n_positions {model['n_positions']}")
  return model


def read_data(path, recipe):
  data = {"shuffle": True, "augment": {}, "token_bytes": 2, **recipe["data"]}
  kind = data.get("kind")
  require(kind in kDataKinds, f"{path}: data.kind: '{kind}' is not supported here; use one of {', '.join(kDataKinds)}")
  images = kind in ("idx", "tensors")
  require(images == (recipe["model"]["family"] == "resnet"),
          f"{path}: data.kind: a {recipe['model']['family']} does not train on '{kind}'")
  require(data["shuffle"] is False, f"{path}: data.shuffle: torch shuffles otherwise; set \"shuffle\": false")
  require(not any((data["augment"] or {}).values()), f"{path}: data.augment: draws random numbers; remove it")
  require("broken" not in data, f"{path}: data.broken: is for an image_folder; remove it")
  require(data["token_bytes"] in (2, 4), f"{path}: data.token_bytes: must be 2 or 4")
  require(isinstance(data.get("path"), str), f"{path}: data.path: must name the data")
  for key in ("path", "eval_path"):
    if data.get(key):
      data[key] = os.path.join(recipe["folder"], data[key])
  return data


def read_optimizer(path, source):
  name = source.get("name")
  require(name in kOptimizers, f"{path}: optimizer.name: '{name}' is not supported here; use sgd or adamw")
  unknown = sorted(set(source) - set(kOptimizers[name]) - {"name", "no_decay"})
  require(not unknown, f"{path}: optimizer.{unknown[0] if unknown else ''}: unknown field of {name}")
  return {"no_decay": [], **kOptimizers[name], **source}


def read_lr_schedule(path, recipe):
  schedule = {"kind": "constant", "warmup_steps": 0, "steps": recipe["steps"], "milestones": [], "gamma": 0.1,
              **recipe.get("lr_schedule", {})}
  require(schedule["kind"] in ("constant", "step", "cosine"),
          f"{path}: lr_schedule.kind: must be constant, step or cosine")
  require(schedule["kind"] != "cosine" or schedule["steps"], f"{path}: lr_schedule.steps: cosine needs it")
  return schedule
