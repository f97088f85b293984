#!/usr/bin/env python3
# Writes the English conversations of the PyPI package chatterbot-corpus (BSD) as JSONL of messages:
# chatterbot.py PACKAGE_FOLDER TRAIN EVAL. They allow a real fine-tuning without other data. The
# first question decides the file, so that no question is in both: one in ten goes to EVAL.
import glob
import json
import os
import sys
import zlib

import yaml


def conversations(package):
  for path in sorted(glob.glob(os.path.join(package, "data", "english", "*.yml"))):
    with open(path, encoding="utf-8") as stream:
      yield from yaml.safe_load(stream)["conversations"]


def messages_of(statements):
  """Returns messages of user and assistant in turns, without a last one of the user that has no
  answer."""
  pairs = len(statements) // 2
  return [{"role": role, "content": text.strip()} for text, role in zip(statements[:2 * pairs], ["user", "assistant"] * pairs)]


def main(package, training, evaluation):
  lines = {training: [], evaluation: []}
  for statements in conversations(package):
    messages = messages_of(statements)
    if not messages or not all(message["content"] for message in messages):
      continue
    asked = messages[0]["content"].lower().encode()
    lines[evaluation if zlib.crc32(asked) % 10 == 0 else training].append(json.dumps({"messages": messages}, ensure_ascii=False))
  for path, some in lines.items():
    with open(path, "w", encoding="utf-8") as stream:
      stream.write("\n".join(some) + "\n")


if __name__ == "__main__":
  main(*sys.argv[1:])
