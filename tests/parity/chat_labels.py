#!/usr/bin/env python3
# Judges the labels of `reprise chat` by trl and transformers (pip install transformers trl gguf).
# trl's training templates mark the assistant's text with {% generation %}; transformers renders the
# templates and tokenises the text. The judge of ids and labels shares no code with ours. The
# repository contains nothing of trl. Each model reads conversations with its training template, and
# with its published template, which has no marks.
# Usage: tests/parity/chat_labels.py BUILD/reprise SMOLLM2.gguf VOCABULARIES
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

from tokenizer_parity import from_gguf

kSamples = 12
# Each model: its name in trl, its vocabulary, its special tokens, and whether its templates support
# tools. Qwen3's vocabulary is Qwen2's with a few more tokens, none of which is needed here.
kQwen = {"eos": "<|im_end|>", "pad": "<|endoftext|>"}
kModels = [("qwen2_5", "ggml-vocab-qwen2.gguf", kQwen, True), ("qwen3", "ggml-vocab-qwen2.gguf", kQwen, True),
           ("qwen3_instruct_2507", "ggml-vocab-qwen2.gguf", kQwen, True),
           ("llama3", "ggml-vocab-llama-bpe.gguf", {"bos": "<|begin_of_text|>", "eos": "<|eot_id|>"}, False)]
# trl has no training template for SmolLM2: this one writes the text of SmolLM2's own template, with
# marks where trl has them in Qwen3's.
kSmollm2 = ("{%- for message in messages %}{%- if loop.first and message.role != 'system' %}{{- '<|im_start|>system\\nYou are a helpful AI "
            "assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{%- endif %}{{- '<|im_start|>' + message.role + '\\n' }}"
            "{%- if message.role == 'assistant' %}{%- generation %}{{- message.content + '<|im_end|>\\n' }}{%- endgeneration %}"
            "{%- else %}{{- message.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}")
kWords = ["Hello", " world", "Grüße", "日本語", "😀", "\n", "\n\n", " ", "  ", "def f(x):", "1234", "don't", ".", "?", "\t", "e\u0301",
          "<think>\nq\u0307\u0323\n</think>\n\n"]
kTools = [{"type": "function", "function": {"name": "look_up", "description": "Looks “it” up", "parameters": {
    "type": "object", "properties": {"word": {"type": "string"}, "count": {"type": "integer"}}, "required": ["word"]}}}]
failures = []


def conversation(draw, turns, with_tools):
  text = lambda: "".join(draw.choice(kWords) for _ in range(draw.randrange(1, 9)))
  messages = [{"role": "system", "content": text()}] if draw.random() < 0.5 else []
  for _ in range(turns):
    messages.append({"role": "user", "content": text()})
    if with_tools:
      functions = [{"name": "look_up", "arguments": {"word": text(), "count": n}} for n in range(draw.randrange(1, 3))]
      calls = [{"type": "function", "function": function} for function in functions]
      messages.append({"role": "assistant", "content": draw.choice(["", text()]), "tool_calls": calls})
      messages += [{"role": "tool", "content": text()} for _ in calls]
    messages.append({"role": "assistant", "content": text()})
  return {"messages": messages, **({"tools": kTools} if with_tools else {})}


def ours(reprise, model, sample):
  """Returns {"ids", "labels"}, or the line of the refusal."""
  with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    json.dump(sample, file, ensure_ascii=False)
    file.flush()
    run = subprocess.run([reprise, "chat", model, file.name, "--json"], capture_output=True, text=True)
  if run.returncode != 0:
    return run.stderr.strip()
  answer = json.loads(run.stdout)
  return {"ids": answer["ids"], "labels": answer["labels"]}


def theirs(tokenizer, template, sample):
  answer = tokenizer.apply_chat_template(sample["messages"], tools=sample.get("tools"), chat_template=template, tokenize=True,
                                         return_dict=True, return_assistant_tokens_mask=True)
  return {"ids": answer["input_ids"], "labels": [id if mask else -100 for id, mask in zip(answer["input_ids"], answer["assistant_masks"])]}


def without_header(tokenizer, marked):
  """Removes the label of the last token of the header "<|im_start|>assistant\n". trl's marks for
  Qwen2.5 start at its line break, which belongs to the prompt: ours leave it out."""
  header = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
  at_end = lambda n: n + 1 >= len(header) and marked["ids"][n + 1 - len(header):n + 1] == header
  return {"ids": marked["ids"], "labels": [-100 if at_end(n) else label for n, label in enumerate(marked["labels"])]}


def as_asked(tokenizer, template, sample):
  """Returns ids and labels with each reply after the prompt that transformers renders for it. A
  reply shares the sample of another text if its own text is the beginning of that text."""
  def render(count, asks):
    return tokenizer.apply_chat_template(sample["messages"][:count], tools=sample.get("tools"), chat_template=template, tokenize=False, add_generation_prompt=asks)
  texts = [(render(len(sample["messages"]), False), [])]
  for n in reversed([n for n, message in enumerate(sample["messages"]) if message["role"] == "assistant"]):
    asked, full = render(n, True), render(n + 1, False)
    assert full.startswith(asked)
    holder = next((turns for text, turns in reversed(texts) if text.startswith(full)), None)
    if holder is None:
      holder = []
      texts.append((full, holder))
    holder.append((len(asked), len(full)))
  ids, labels = [], []
  for text, turns in reversed(texts):
    read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    learned = lambda begin, end: any(begin < turn[1] and end > turn[0] for turn in turns)
    ids += read["input_ids"]
    labels += [id if learned(*span) else -100 for id, span in zip(read["input_ids"], read["offset_mapping"])]
  return {"ids": ids, "labels": labels}


def judge(what, verdicts):
  good = sum(verdicts)
  print(f"  {'ok  ' if good == len(verdicts) else 'FAIL'} {what}: {good} of {len(verdicts)}", flush=True)
  if good != len(verdicts):
    failures.append(what)


def samples_of(name, with_tools):
  draw = random.Random(name)
  return [conversation(draw, (1, 1, 2, 4)[n % 4], with_tools and n % 3 == 2) for n in range(kSamples)]


def judge_published(reprise, name, model, tokenizer, training, samples):
  """Judges the published template, in which `reprise chat` finds replies by rendering the messages
  before them."""
  answers = [(ours(reprise, model, sample), theirs(tokenizer, training, sample), sample) for sample in samples]
  if name == "qwen2_5":
    equal = [mine == without_header(tokenizer, marked) for mine, marked, _ in answers]
    return judge(f"{name}, published template, without the break behind \"assistant\"", equal)
  if name != "qwen3":
    return judge(f"{name}, published template", [mine == marked for mine, marked, _ in answers])
  # Qwen3's template writes the thoughts of the last turn only: a reply is written differently once
  # others follow, and is learned in a sample of its own. trl's training template writes all
  # thoughts in one sample.
  published = open(os.path.join(model, "chat_template.jinja"), encoding="utf-8").read()
  has_one = lambda sample: sum(message["role"] == "assistant" for message in sample["messages"]) == 1
  judge(f"{name}, published template, one reply", [mine == marked for mine, marked, sample in answers if has_one(sample)])
  several = [(mine, as_asked(tokenizer, published, sample)) for mine, _, sample in answers if not has_one(sample)]
  judge(f"{name}, published template, several replies", [mine == found for mine, found in several])


def judge_model(reprise, name, backend, tokens, templates, with_tools):
  tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **{word + "_token": token for word, token in tokens.items()})
  template = lambda file: open(os.path.join(templates, file), encoding="utf-8").read()
  training = template(name + "_training.jinja")
  samples = samples_of(name, with_tools)
  with tempfile.TemporaryDirectory() as folder:
    backend.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
      json.dump({word + "_token": token for word, token in tokens.items()}, file)
    def put_template(source):
      with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(source)
    put_template(training)
    judge(f"{name}, training template", [ours(reprise, folder, sample) == theirs(tokenizer, training, sample) for sample in samples])
    put_template(template(name + ".jinja"))
    judge_published(reprise, name, folder, tokenizer, training, samples)


def main(reprise, smollm2, vocabularies):
  templates = os.path.join(importlib.util.find_spec("trl").submodule_search_locations[0], "chat_templates")
  backends = {}
  for name, file, tokens, with_tools in kModels:
    if file not in backends:
      backends[file] = from_gguf(os.path.join(vocabularies, file))
    judge_model(reprise, name, backends[file], tokens, templates, with_tools)
  tokenizer = PreTrainedTokenizerFast(tokenizer_object=from_gguf(smollm2), eos_token="<|im_end|>", pad_token="<|im_end|>")
  judge_published(reprise, "smollm2", smollm2, tokenizer, kSmollm2, samples_of("smollm2", False))
  if failures:
    sys.exit(f"{len(failures)} comparisons failed")


if __name__ == "__main__":
  main(*sys.argv[1:])
