#!/usr/bin/env python3
"""Packs conversations into rows for lm_peer.py: a folder of chatterbot-corpus (PyPI; its data/english), by a GGUF file's tokenizer.

Tokens are made by Hugging Face's tokenizers, put together from primitives (each digit alone, then GPT-2's splitting, then byte-level
BPE); labels stand on the answer and the end of its turn. Conversations follow one another in the corpus's order; one that does not fit
into the rest of a row begins the next, and the rest is padding without a label. Every --hold-out'th conversation goes to the
evaluation rows.
Usage: build/parity-venv/bin/python tests/bench/lm_rows.py GGUF CORPUS OUT.jsonl [--eval OUT2.jsonl] [--length 512] [--hold-out 10]
"""
import argparse
import json
import pathlib

IGNORED = -100
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # the template's default


def make_tokenizer(path):
  import gguf
  from tokenizers import Tokenizer, models, pre_tokenizers
  fields = gguf.GGUFReader(path).fields
  tokens, merges = (fields["tokenizer.ggml." + name].contents() for name in ("tokens", "merges"))
  tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges]))
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
  return tokenizer, {token: n for n, token in enumerate(tokens)}


def conversations(folder):
  import yaml
  for path in sorted(folder.glob("*.yml")):
    for turns in yaml.safe_load(path.read_text())["conversations"]:
      yield [str(turn) for turn in turns]


def tokenize(tokenizer, special, turns):
  """(ids, labels of their own tokens) of a system turn, then user and assistant in turns."""
  begin, end = special["<|im_start|>"], special["<|im_end|>"]
  encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
  ids, labels = [], []
  for n, text in enumerate([SYSTEM, *turns]):
    role = "system" if n == 0 else ("assistant" if n % 2 == 0 else "user")
    head, body = [begin, *encode(role + "\n")], [*encode(text), end]
    learned = role == "assistant"
    ids += head + body + encode("\n")
    labels += [IGNORED] * len(head) + (body if learned else [IGNORED] * len(body)) + [IGNORED] * len(encode("\n"))
  return ids, labels


def pack(samples, length, pad):
  rows, row = [], None
  for ids, labels in samples:
    if len(ids) > length:
      continue
    if row is None or len(row["tokens"]) + len(ids) > length:
      rows.append(row := {"tokens": [], "labels": [], "document_start": []})
    start = len(row["tokens"])
    row["tokens"] += ids
    row["labels"] += labels[1:] + [IGNORED]
    row["document_start"] += [start] * len(ids)
  for row in rows:
    used = len(row["tokens"])
    row["tokens"] += [pad] * (length - used)
    row["labels"] += [IGNORED] * (length - used)
    row["document_start"] += [used] * (length - used)
  return rows


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("gguf", type=pathlib.Path)
  parser.add_argument("corpus", type=pathlib.Path)
  parser.add_argument("out", type=pathlib.Path)
  parser.add_argument("--eval", type=pathlib.Path)
  parser.add_argument("--length", type=int, default=512)
  parser.add_argument("--hold-out", type=int, default=10)
  args = parser.parse_args()
  tokenizer, special = make_tokenizer(args.gguf)
  samples = [tokenize(tokenizer, special, turns) for turns in conversations(args.corpus)]
  parts = [(args.out, samples)]
  if args.eval:
    held = samples[::args.hold_out]
    parts = [(args.out, [s for n, s in enumerate(samples) if n % args.hold_out != 0]), (args.eval, held)]
  for path, part in parts:
    rows = pack(part, args.length, special["<|im_end|>"])
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    labelled = sum(label != IGNORED for row in rows for label in row["labels"])
    print(f"{path}: {len(rows)} rows of {args.length} tokens from {len(part)} conversations, {labelled} labels")


if __name__ == "__main__":
  main()
