#!/usr/bin/env python3
# Writes the logits of models in Hugging Face folders, computed by the generation of transformers
# that is found first (PYTHONPATH). Reason: generation 4 reads other fields of a config.json than
# generation 5, and both are in use.
# Usage: folder_logits.py TASKS.json OUT.safetensors
# TASKS.json is a list of {"folder": DIR, "ids": [...], "text": null or TEXT}. OUT contains logits
# [T, vocabulary] as F32 "0", "1" ..., and for each text the ids that the folder's tokenizer gives
# it, I64 "ids.0" ...
import json
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers.utils import logging


def main():
  logging.set_verbosity_error()
  logging.disable_progress_bar()
  torch.set_num_threads(2)
  with open(sys.argv[1]) as file:
    tasks = json.load(file)
  answers = {}
  for number, task in enumerate(tasks):
    # Generation 4's default attention for Gemma 2 has no caps of scores.
    model, report = transformers.AutoModelForCausalLM.from_pretrained(task["folder"], dtype=torch.float32, output_loading_info=True,
                                                                      attn_implementation="eager")
    wrong = [name for key in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in report[key]]
    if wrong:
      sys.exit(f"{task['folder']}: transformers {transformers.__version__} finds tensors missing, not expected or of another shape: {wrong}")
    with torch.no_grad():
      answers[str(number)] = model.eval()(torch.tensor([task["ids"]])).logits[0].float().contiguous()
    if task.get("text") is not None:
      answers[f"ids.{number}"] = torch.tensor(transformers.AutoTokenizer.from_pretrained(task["folder"]).encode(task["text"]), dtype=torch.int64)
  save_file(answers, sys.argv[2], {"version": transformers.__version__})


if __name__ == "__main__":
  main()
