#!/usr/bin/env python3
"""Packs conversations into rows for lm_peer.py, as "data": {"kind": "chat", "pack": true,
"shuffle": false} of a recipe does.

Tokens are made by Hugging Face's tokenizers, composed of primitives (each digit alone, then GPT-2's
splitting, then byte-level BPE) with the vocabulary of SmolLM2's GGUF file. Labels cover the answer
and the end of its turn with the newline. Each conversation goes into the first row that has space
for it; the rest of a row is padding without a label, a document of its own.
Usage: build/parity-venv/bin/python tests/bench/peers/lm_rows.py GGUF CONVERSATIONS.jsonl OUT.jsonl [--length 512]
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


def conversations(path):
  """Yields each conversation as a list of (role, content)."""
  for line in path.read_text().splitlines():
    messages = [(message["role"], message["content"]) for message in json.loads(line)["messages"]]
    yield messages if messages[0][0] == "system" else [("system", SYSTEM), *messages]


def tokenize(tokenizer, special, messages):
  """Returns token ids and the labels of these tokens, not yet shifted to the next token."""
  begin, end = special["<|im_start|>"], special["<|im_end|>"]
  encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
  ids, labels = [], []
  for role, text in messages:
    head, body = [begin, *encode(role + "\n")], [*encode(text), end, *encode("\n")]
    learned = role == "assistant"
    ids += head + body
    labels += [IGNORED] * len(head) + (body if learned else [IGNORED] * len(body))
  return ids, labels


def pack(samples, length, pad):
  rows = []
  for ids, labels in samples:
    if len(ids) > length:
      raise SystemExit(f"lm_rows: a conversation has {len(ids)} tokens, more than {length}")
    row = next((row for row in rows if len(row["tokens"]) + len(ids) <= length), None)
    if row is None:
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
  parser.add_argument("conversations", type=pathlib.Path)
  parser.add_argument("out", type=pathlib.Path)
  parser.add_argument("--length", type=int, default=512)
  args = parser.parse_args()
  tokenizer, special = make_tokenizer(args.gguf)
  samples = [tokenize(tokenizer, special, messages) for messages in conversations(args.conversations)]
  rows = pack(samples, args.length, special["<|im_end|>"])
  args.out.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
  labelled = sum(label != IGNORED for row in rows for label in row["labels"])
  print(f"{args.out}: {len(rows)} rows of {args.length} tokens from {len(samples)} conversations, {labelled} labels")


if __name__ == "__main__":
  main()
