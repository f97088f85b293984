#!/usr/bin/env python3
# Makes the goldens of losses on pairs of answers, tests/golden/preferences, or (--verify) makes
# them anew and compares. trl's own trainers define a few steps of DPO, ORPO and KTO, from texts and
# conversations to losses, rewards and gradients. Needs the packages of requirements.txt (make
# parity).
"""Usage: build/parity-venv/bin/python tests/parity/make_preference_goldens.py [--verify]"""
import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
warnings.filterwarnings("ignore")

import torch

kFolder = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "preferences"))
kSteps = 3
kTimes = 5  # allowed distance of a gradient from f64, as a multiple of that of trl's own f32
kLearningRate = 0.01
kChatMl = ("{% if tools %}{{'<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>' + '\\n'}}{% endif %}"
           "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

kShape = {"vocab_size": 264, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 6, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
          "bos_token_id": None, "eos_token_id": 259, "pad_token_id": 260, "initializer_range": 0.3}
kLora = {"r": 4, "alpha": 8, "dropout": 0, "rslora": False, "targets": ["q_proj", "v_proj", "down_proj"]}
kCases = {
    "dpo": {"model": "llama", "loss": {"kind": "dpo", "beta": 0.5}, "data": "texts", "batch": 2, "accumulate": 2, "sequence": 160, "lora": kLora},
    "dpo_chat": {"model": "qwen3", "loss": {"kind": "dpo", "beta": 0.1}, "data": "chats", "batch": 2, "accumulate": 2, "sequence": 256, "lora": None},
    "dpo_tools": {"model": "qwen3", "loss": {"kind": "dpo", "beta": 0.2}, "data": "tools", "batch": 2, "accumulate": 1, "sequence": 256, "lora": kLora},
    "orpo": {"model": "llama", "loss": {"kind": "orpo", "beta": 0.2}, "data": "texts", "batch": 4, "accumulate": 1, "sequence": 160, "lora": kLora},
    "kto": {"model": "llama", "loss": {"kind": "kto", "beta": 0.3, "desirable_weight": 1.5, "undesirable_weight": 0.75}, "data": "texts", "batch": 4,
            "accumulate": 1, "sequence": 192, "lora": kLora},
    "kto_chat": {"model": "qwen3", "loss": {"kind": "kto", "beta": 0.1}, "data": "chats", "batch": 3, "accumulate": 1, "sequence": 256, "lora": kLora},
}


# ---- files ------------------------------------------------------------------------------------------------------------------------

def write_json(path, value):
  with open(path, "w") as file:
    json.dump(value, file, indent=1, sort_keys=True)
    file.write("\n")


def byte_alphabet():
  """Returns GPT-2's letters for bytes."""
  shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
  letters, more = {byte: chr(byte) for byte in shown}, 0
  for byte in range(256):
    if byte not in letters:
      letters[byte] = chr(256 + more)
      more += 1
  return letters


def write_tokenizer(folder):
  vocabulary = {letter: byte for byte, letter in sorted(byte_alphabet().items())}
  merges = []
  for first, second in ((" ", "t"), ("i", "s")):  # so that the border between prompt and answer can be inside a token
    pair = [byte_alphabet()[ord(letter)] for letter in (first, second)]
    merges.append(pair)
    vocabulary["".join(pair)] = len(vocabulary)
  added = [{"id": len(vocabulary) + n, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
           for n, content in enumerate(("<|im_start|>", "<|im_end|>", "<|pad|>"))]
  write_json(os.path.join(folder, "tokenizer.json"),
             {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
              "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
              "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
              "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": merges}})
  write_json(os.path.join(folder, "tokenizer_config.json"),
             {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|pad|>", "chat_template": kChatMl,
              "clean_up_tokenization_spaces": False})


def make_model(folder, kind, seed):
  from transformers import AutoConfig, AutoModelForCausalLM
  torch.manual_seed(seed)
  model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **kShape))
  with torch.no_grad():
    for tensor in model.parameters():
      if tensor.dim() == 1:
        tensor.add_(0.3 * torch.randn(tensor.shape))
  os.makedirs(folder)
  model.save_pretrained(folder)
  os.remove(os.path.join(folder, "generation_config.json"))
  write_tokenizer(folder)


def write_records(path, records):
  with open(path, "w") as file:
    file.writelines(json.dumps(record) + "\n" for record in records)


def make_records(kind, data, count):
  """Returns records with answers of different lengths, some of which start within the prompt's last
  token."""
  draw = random.Random(f"{kind} {data}")
  words = ["is", "this", "that", "two", "ten", "sum", "one", "tea", "ist", "no"]
  say = lambda least, most: " ".join(draw.choice(words) for _ in range(draw.randint(least, most)))
  records = []
  for n in range(count):
    prompt, good, bad = f"{n}. {say(2, 5)}:", " " + say(1, 4), " " + say(1, 4) + "."
    if n % 5 == 4 and kind != "orpo":  # trl's ORPO trainer, unlike the others, separates answer and prompt itself
      prompt, good, bad = prompt + " ", good[1:], bad[1:]
    if data in ("chats", "tools"):
      prompt = ([{"role": "system", "content": "Sum."}] if n % 3 == 0 else []) + [{"role": "user", "content": prompt}]
      good, bad = [{"role": "assistant", "content": good.strip()}], [{"role": "assistant", "content": bad.strip()}]
    if kind != "kto":
      records.append({"prompt": prompt, "chosen": good, "rejected": bad})
      if data == "tools":
        records[-1]["tools"] = None if n % 3 == 0 else json.dumps([{"name": f"f{n}", "of": {"n": None}}])
    else:
      wished = n % 3 != 1
      records.append({"prompt": prompt, "completion": good if wished else bad, "label": wished})
  return records


def recipe_of(name, case):
  data = {"kind": "preferences", "path": "records.jsonl", "shuffle": False}
  recipe = {"name": f"preferences-{name}", "model": {"huggingface": f"../../models/{case['model']}"}, "data": data, "loss": case["loss"],
            "batch": case["batch"], "accumulate": case["accumulate"], "sequence": case["sequence"], "steps": kSteps, "seed": 3,
            "optimizer": {"name": "adamw", "lr": kLearningRate, "weight_decay": 0.0}}
  return {**recipe, **({"lora": case["lora"]} if case["lora"] else {})}


# ---- trl --------------------------------------------------------------------------------------------------------------------------

def make_trainer(folder, case, records, dtype):
  from datasets import Dataset
  from peft import LoraConfig
  from transformers import AutoModelForCausalLM, AutoTokenizer
  loss = case["loss"]
  model_folder = os.path.join(kFolder if not make_trainer.root else make_trainer.root, "models", case["model"])
  load = lambda: AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager")
  lora = case["lora"]
  adapter = LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=0.0, target_modules=lora["targets"], task_type="CAUSAL_LM") if lora else None
  output = tempfile.mkdtemp()
  common = dict(output_dir=output, beta=loss["beta"], per_device_train_batch_size=case["batch"], gradient_accumulation_steps=case["accumulate"],
                report_to=[], use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, max_length=512, disable_tqdm=True)
  arguments = dict(model=load(), train_dataset=Dataset.from_list(records), processing_class=AutoTokenizer.from_pretrained(model_folder), peft_config=adapter)
  if loss["kind"] == "dpo":
    from trl import DPOConfig, DPOTrainer
    trainer = DPOTrainer(args=DPOConfig(**common), ref_model=None if lora else load(), **arguments)
  elif loss["kind"] == "orpo":
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer
    trainer = ORPOTrainer(args=ORPOConfig(**common), **arguments)
  else:
    from trl import KTOConfig, KTOTrainer
    weights = {key: loss[key] for key in ("desirable_weight", "undesirable_weight") if key in loss}
    trainer = KTOTrainer(args=KTOConfig(**common, train_sampling_strategy="sequential", **weights), **arguments)
  shutil.rmtree(output, ignore_errors=True)
  for model in (trainer.model, getattr(trainer, "ref_model", None)):
    if model is not None:
      model.to(dtype)
  return trainer


make_trainer.root = None


def name_of(parameter):
  return parameter.removeprefix("base_model.model.").replace(".default.", ".")


def set_adapter(model, tensors):
  """Copies the tensors into A and B of the adapter, because peft's initial zeros of lora_B would
  hide everything."""
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if "lora_" in name:
        parameter.copy_(tensors[name_of(name)])


def draw_adapter(model):
  generator = torch.Generator().manual_seed(7)
  return {name_of(name): (0.2 if "lora_B" in name else 0.3) * torch.randn(parameter.shape, generator=generator)
          for name, parameter in model.named_parameters() if "lora_" in name}


def mean(values):
  return sum(values) / len(values) if values else None


def loss_of(trainer, kind, inputs):
  if kind != "orpo":
    return trainer._compute_loss(trainer.model, inputs, False)
  loss, metrics = trainer.get_batch_loss_metrics(trainer.model, inputs, "train")
  for key, value in metrics.items():
    trainer._metrics["train"].setdefault(key, []).append(float(value))
  return loss


def train(trainer, case):
  kind, batch, accumulate = case["loss"]["kind"], case["batch"], case["accumulate"]
  trainer._metrics = {"train": __import__("collections").defaultdict(list), "eval": __import__("collections").defaultdict(list)}
  parameters = {name_of(name): p for name, p in trainer.model.named_parameters() if p.requires_grad}
  optimizer = torch.optim.AdamW(parameters.values(), lr=kLearningRate, weight_decay=0.0)
  steps, gradients = [], None
  trainer.model.train()
  for step in range(kSteps):
    optimizer.zero_grad(set_to_none=True)
    trainer._metrics["train"].clear()
    losses = []
    for micro in range(accumulate):
      first = (step * accumulate + micro) * batch
      examples = [trainer.train_dataset[n % len(trainer.train_dataset)] for n in range(first, first + batch)]
      loss = loss_of(trainer, kind, trainer.data_collator(examples))
      (loss / accumulate).backward()
      losses.append(loss.item())
    metrics = trainer._metrics["train"]
    steps.append({"loss": mean(losses), **{key: mean(metrics[f"rewards/{key}"]) for key in ("chosen", "rejected", "accuracies") if metrics.get(f"rewards/{key}")},
                  **({"kl": mean(metrics["kl"])} if kind == "kto" else {})})
    if gradients is None:
      gradients = {name: p.grad.detach().clone() for name, p in parameters.items()}
    optimizer.step()
  return steps, gradients


def tokens_of(trainer, kind):
  names = {"dpo": ("prompt_ids", "chosen_ids", "rejected_ids"), "kto": ("prompt_ids", "completion_ids", "KL_completion_ids")}
  if kind in names:
    return [[list(row[name]) for name in names[kind]] for row in trainer.train_dataset]
  rows = []
  for row in trainer.train_dataset:
    prompt = sum(label == -100 for label in row["chosen_labels"])
    rows.append([list(row["chosen_input_ids"][:prompt]), list(row["chosen_input_ids"][prompt:]), list(row["rejected_input_ids"][prompt:])])
  return rows


def digits(value):
  return float(f"{value:.12g}")


def make_case(root, name, case):
  from safetensors.torch import save_file
  folder = os.path.join(root, "cases", name)
  os.makedirs(folder)
  records = make_records(case["loss"]["kind"], case["data"], kSteps * case["batch"] * case["accumulate"])
  write_records(os.path.join(folder, "records.jsonl"), records)
  write_json(os.path.join(folder, "recipe.json"), recipe_of(name, case))
  runs, adapter = {}, None
  for dtype in (torch.float32, torch.float64):
    trainer = make_trainer(folder, case, records, dtype)
    if case["lora"]:
      adapter = adapter or draw_adapter(trainer.model)
      set_adapter(trainer.model, adapter)
    runs[dtype] = (*train(trainer, case), tokens_of(trainer, case["loss"]["kind"]))
  (steps32, gradients32, _), (steps, gradients, tokens) = runs[torch.float32], runs[torch.float64]
  apart = {key: ((gradients32[key].double() - right).norm() / right.norm()).item() for key, right in gradients.items()}
  worst_loss = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(steps32, steps))
  print(f"{name}: losses {[round(step['loss'], 6) for step in steps]}, f32 and f64 of trl apart: losses {worst_loss:.1e}, gradients {max(apart.values()):.1e}")
  write_json(os.path.join(folder, "golden.json"),
             {"steps": [{key: digits(value) for key, value in step.items()} for step in steps], "loss_bound": max(kTimes * worst_loss, 1e-6),
              "gradient_bounds": {key: max(kTimes * value, 1e-6) for key, value in apart.items()}, "tokens": tokens})
  save_file({key: value.float().contiguous() for key, value in gradients.items()}, os.path.join(folder, "gradients.safetensors"))
  if adapter:
    save_file({key: value.contiguous() for key, value in adapter.items()}, os.path.join(folder, "adapter.safetensors"))


def make_all(root):
  make_trainer.root = root
  for seed, kind in enumerate(("llama", "qwen3")):
    make_model(os.path.join(root, "models", kind), kind, seed + 11)
  for name, case in kCases.items():
    make_case(root, name, case)


def verify(root):
  """Exits if texts differ, or if a number differs by more than 1e-6 relative to its size."""
  for name in kCases:
    old, new = (json.load(open(os.path.join(folder, "cases", name, "golden.json"))) for folder in (kFolder, root))
    if old["tokens"] != new["tokens"]:
      sys.exit(f"{name}: trl makes other tokens than the golden's")
    for step, (a, b) in enumerate(zip(old["steps"], new["steps"])):
      for key, value in a.items():
        if abs(value - b[key]) > 1e-6 * (1 + abs(value)):
          sys.exit(f"{name}: step {step + 1}: {key} is {b[key]}, the golden has {value}")
  print("the goldens of preferences are what trl makes")


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--verify", action="store_true", help="make them elsewhere and compare")
  options = parser.parse_args()
  torch.set_num_threads(1)
  if not options.verify:
    shutil.rmtree(kFolder, ignore_errors=True)
    return make_all(kFolder)
  with tempfile.TemporaryDirectory() as root:
    make_all(root)
    verify(root)


if __name__ == "__main__":
  main()
