# Compares a training log and saved weights of Reprise with a golden, and a golden with a fresh one.
# It is separate from training.py so that checking needs no PyTorch.
import json
import math

from recipe_file import RecipeError


def relative(a, b):
  return abs(a - b) / max(abs(b), 1e-300)


def read_log(path):
  """Returns log lines by step: ({step: training line}, {step: evaluation line}); the last line of a
  repeated step counts."""
  training, evaluation = {}, {}
  try:
    with open(path) as file:
      lines = [line for line in file if line.strip()]
  except OSError as error:
    raise RecipeError(f"{path}: {error.strerror}")
  for number, text in enumerate(lines, 1):
    try:
      line = json.loads(text)
      if "loss" in line:
        training[line["step"]] = line
      if "eval_loss" in line:
        evaluation[line["step"]] = line
    except (ValueError, TypeError, KeyError):
      raise RecipeError(f"{path}: line {number} is not a log line {{\"step\", \"loss\", ...}}")
  return training, evaluation


def as_number(value):
  return float(value) if isinstance(value, (int, float)) else math.nan


def compare(label, value, expected, tolerance):
  """Prints one line of the table; returns whether value is within tolerance of expected (NaN is
  not)."""
  error = relative(as_number(value), expected)
  good = error <= tolerance
  print(f"{label:<24} {as_number(value):<16.9g} {expected:<16.9g} {error:<10.2e} {tolerance:<10.2e} "
        f"{'ok' if good else 'OFF'}")
  return good


def check_log(golden, path):
  """Prints the table; returns None, or the first line that is out of tolerance."""
  training, evaluation = read_log(path)
  print(f"{'':<24} {'log':<16} {'torch f64':<16} {'relative':<10} {'tolerance':<10}")
  off = []
  for index, expected in enumerate(golden["loss_f64"]):
    line = training.get(index + 1, {})
    if not compare(f"step {index + 1} loss", line.get("loss"), expected, golden["tolerance"][index]):
      off.append(explain(golden, index, line))
  for expected in golden["evaluations"]:
    line = evaluation.get(expected["step"], {})
    if not compare(f"step {expected['step']} eval_loss", line.get("eval_loss"), expected["eval_loss_f64"],
                   expected["tolerance"]):
      off.append(f"step {expected['step']}: eval_loss is {line.get('eval_loss', 'missing')}, "
                 f"torch says {expected['eval_loss_f64']:.9g} (accuracy {expected['accuracy']:.4g})")
  return off[0] if off else None


def explain(golden, index, line):
  """Returns a text that names the step and the other fields of its log line that differ: look there
  first."""
  if not line:
    return f"step {index + 1}: the log has no line for it"
  text = f"step {index + 1}: loss is {line['loss']}, torch says {golden['loss_f64'][index]:.9g}"
  for key, expected in (("lr", golden["lr"][index]), ("grad_norm", golden["grad_norm_f64"][index])):
    if line.get(key) is not None and not relative(as_number(line[key]), expected) <= 1e-3:
      text += f"; {key} is {line[key]}, torch says {expected:.9g}"
  return text


def check_weights(golden, path, tensors):
  """Compares the norm of every saved tensor after the last step; prints those out of tolerance;
  returns None or the first."""
  off = []
  for name, expected in golden["final_norms_f64"].items():
    tolerance = max(1e-5, 10 * relative(golden["final_norms_f32"][name], expected))
    value = float((tensors[name].astype("float64") ** 2).sum() ** 0.5) if name in tensors else math.nan
    if not relative(value, expected) <= tolerance:
      off.append(f"{name}: norm is {value:.9g}, torch says {expected:.9g} (tolerance {tolerance:.1e})")
  for line in off:
    print(line)
  print(f"{path}: {len(golden['final_norms_f64']) - len(off)} of {len(golden['final_norms_f64'])} tensor norms agree")
  return off[0] if off else None


def check_golden(fresh, stored):
  """Compares a fresh golden with the stored one; the f64 runs must agree far below the tolerance.
  Returns None or the fault."""
  if fresh["recipe"] != stored["recipe"]:
    return "golden.json was made from another recipe.json"
  for index, tolerance in enumerate(stored["tolerance"]):
    for key, allowed in (("loss_f64", 1e-3 * tolerance), ("loss_f32", tolerance)):
      error = relative(fresh[key][index], stored["loss_f64"][index])
      if not error <= allowed:
        return f"step {index + 1}: {key} is {fresh[key][index]:.9g}, stored {stored[key][index]:.9g}"
  for new, old in zip(fresh["evaluations"], stored["evaluations"]):
    if not relative(new["eval_loss_f64"], old["eval_loss_f64"]) <= 1e-3 * old["tolerance"]:
      return f"step {old['step']}: eval_loss is {new['eval_loss_f64']:.9g}, stored {old['eval_loss_f64']:.9g}"
  return None
