#!/usr/bin/python3
# Trains a recipe's net in plain PyTorch, f32 and f64, and checks Reprise's log of the same recipe
# against it. With it anyone can ask, for a recipe of their own: does Reprise train what PyTorch
# trains? It must not use Reprise's code: only recipes, weights, data and logs, as tools/FILES.md
# defines them.
"""Usage:
  torch_parity.py RECIPE --out DIR            makes DIR/W.safetensors and DIR/golden.json
  build/NAME/train --init DIR/W.safetensors --steps 6 --log LOG.jsonl
  torch_parity.py RECIPE --out DIR --check LOG.jsonl
Needs python3-torch and python3-numpy. The recipe must say "shuffle": false, and no augmentation or dropout."""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import golden_check
from recipe_file import RecipeError, read_json, read_recipe
from safetensors_file import SafetensorsError, read_safetensors, write_safetensors


def parse_arguments():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("recipe")
  parser.add_argument("--steps", type=int, default=6)
  parser.add_argument("--out", help="folder of W.safetensors and golden.json (default build/parity/NAME)")
  parser.add_argument("--init", help="initial weights to train from, instead of making OUT/W.safetensors")
  parser.add_argument("--init-jitter", type=float, default=0.0, help="noise on made biases, norms, BN statistics")
  parser.add_argument("--golden", help="check against this golden; train nothing")
  parser.add_argument("--check", metavar="LOG.jsonl", help="compare Reprise's log; exit 1 if a step is off")
  parser.add_argument("--check-weights", metavar="MODEL.safetensors", help="compare the norms of the saved weights too")
  parser.add_argument("--probes", type=int, default=0, metavar="N",
                      help="N more f32 runs from weights nudged by one ulp: can any f32 program meet the tolerance?")
  parser.add_argument("--threads", type=int, default=1)
  return parser.parse_args()


def initial_weights(arguments, recipe, out):
  """Returns (path, tensors). A check never makes weights: the log was trained from existing
  ones."""
  path = arguments.init or recipe["model"].get("weights") or os.path.join(out, "W.safetensors")
  making = path == os.path.join(out, "W.safetensors") and not (arguments.check or arguments.check_weights)
  if making:
    from training import make_weights
    os.makedirs(out, exist_ok=True)
    write_safetensors(path, make_weights(recipe, arguments.init_jitter))
  return path, read_safetensors(path)


def make_and_write_golden(arguments, recipe, out):
  try:
    from training import make_golden, probe
  except ImportError as error:
    raise RecipeError(f"{error}: install python3-torch")
  path, weights = initial_weights(arguments, recipe, out)
  golden = make_golden(recipe, arguments.steps, path, weights, arguments.threads)
  os.makedirs(out, exist_ok=True)
  write_json(os.path.join(out, "golden.json"), golden)
  if arguments.probes:
    worst, step = probe(recipe, golden, path, weights, arguments.probes)
    print(f"{arguments.probes} nudged f32 runs: at worst {worst:.3g} tolerances from f64, at step {step}"
          + ("; this recipe sits on a tie of ReLU or max pool, try another seed" if worst > 1 else ""))
  return golden, path


def write_json(path, value):
  with open(path, "w") as file:
    json.dump(value, file, indent=1)
    file.write("\n")


def print_losses(golden):
  print(f"{'step':<6}{'loss f32':<20}{'loss f64':<20}{'tolerance':<10}")
  for step in range(golden["steps"]):
    f32, f64, tolerance = (golden[key][step] for key in ("loss_f32", "loss_f64", "tolerance"))
    print(f"{step + 1:<6}{f32:<20.12g}{f64:<20.12g}{tolerance:<10.2e}")
  for line in golden["evaluations"]:
    print(f"step {line['step']}: eval_loss {line['eval_loss_f64']:.12g}, accuracy {line['accuracy']:.4g}")


def main():
  arguments = parse_arguments()
  recipe = read_recipe(arguments.recipe)
  out = arguments.out or os.path.join("build", "parity", recipe["name"])
  checking = arguments.check or arguments.check_weights
  if arguments.golden:
    golden = read_json(arguments.golden)
    if golden["recipe"] != recipe["source"]:
      raise RecipeError(f"{arguments.golden}: was made from another recipe than {arguments.recipe}")
  else:
    golden, weights_path = make_and_write_golden(arguments, recipe, out)
    print_losses(golden)
    if not checking:
      print(f"Now: build/{recipe['name']}/train --init {weights_path} --steps {arguments.steps} --log LOG.jsonl\n"
            f"then: {sys.argv[0]} {arguments.recipe} --init {weights_path} --steps {arguments.steps} --check LOG.jsonl")
  faults = []
  if arguments.check:
    faults.append(golden_check.check_log(golden, arguments.check))
  if arguments.check_weights:
    saved = read_safetensors(arguments.check_weights)
    faults.append(golden_check.check_weights(golden, arguments.check_weights, saved))
  for fault in filter(None, faults):
    print(f"torch_parity: {fault}", file=sys.stderr)
  return 1 if any(faults) else 0


if __name__ == "__main__":
  try:
    sys.exit(main())
  except (RecipeError, SafetensorsError) as error:
    print(f"torch_parity: {error}", file=sys.stderr)
    sys.exit(1)
