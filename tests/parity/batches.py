# Loads the data that a recipe names and returns micro-batches in the order of "shuffle": false
# (tools/FILES.md, "Data"). With it torch reads exactly the samples and pixels that Reprise reads.
import gzip
import os
import struct

import numpy as np

from recipe_file import RecipeError, require
from safetensors_file import read_safetensors


class ImageSamples:
  """Images (N,C,H,W), either u8 pixels to which mean and std are applied, or f32 used as they are;
  labels (N,) i64."""

  def __init__(self, images, labels, mean=None, std=None):
    self.images, self.labels, self.mean, self.std = images, labels, mean, std
    self.count = len(labels)

  def take(self, indices, dtype):
    images = self.images[indices].astype(dtype)
    if self.images.dtype == np.uint8:
      images = (images / dtype(255) - self.mean.astype(dtype)) / self.std.astype(dtype)
    return images, self.labels[indices]


class TokenSamples:
  """Sample n consists of tokens n*T .. n*T+T inclusive: T inputs and the T targets one position
  later."""

  def __init__(self, tokens, length):
    self.tokens, self.length = tokens, length
    self.count = (len(tokens) - 1) // length

  def take(self, indices, dtype):
    windows = np.stack([self.tokens[n * self.length:n * self.length + self.length + 1] for n in indices])
    return windows[:, :-1], windows[:, 1:]


def micro_batch_indices(recipe, samples, step, micro):
  """Returns the samples of micro-batch u of step s (both from 0): n = ((s*accumulate+u)*batch+b)
  mod N."""
  first = (step * recipe["accumulate"] + micro) * recipe["batch"]
  return [(first + b) % samples.count for b in range(recipe["batch"])]


def load_samples(recipe, evaluation=False):
  """Returns the training samples, or the evaluation samples; None if the recipe names no file of
  the latter."""
  data = recipe["data"]
  path = data.get("eval_path") if evaluation else data["path"]
  if data["kind"] == "idx":
    return load_idx(recipe, path or data["path"], "t10k" if evaluation else "train")
  if path is None:
    return None
  if data["kind"] == "tensors":
    return load_tensors(recipe, path)
  return load_tokens(recipe, path)


def read_bytes(path):
  try:
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
      return file.read()
  except OSError as error:
    raise RecipeError(f"{path}: {error.strerror or error}")


def read_idx(folder, stem):
  """Reads one idx file of unsigned bytes: 0 0 8 rank, big-endian u32 extents, data."""
  path = os.path.join(folder, stem)
  path = path if os.path.exists(path) else path + ".gz"
  data = read_bytes(path)
  require(len(data) >= 4 and data[:3] == b"\0\0\x08", f"{path}: not an idx file of unsigned bytes")
  shape = struct.unpack(f">{data[3]}I", data[4:4 + 4 * data[3]])
  array = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * data[3])
  require(array.size == np.prod(shape), f"{path}: {array.size} bytes of data, the header says {shape}")
  return array.reshape(shape)


def per_channel(recipe, key, default):
  channels = recipe["model"]["image"][2]
  value = np.atleast_1d(np.asarray(recipe["data"].get(key, default), dtype=np.float64))
  require(value.size in (1, channels), f"data.{key}: {value.size} values for {channels} channels")
  return np.broadcast_to(value, (channels,)).reshape(channels, 1, 1)


def check_images(recipe, path, images, labels):
  height, width, channels = recipe["model"]["image"]
  require(images.ndim == 4 and images.shape[1:] == (channels, height, width),
          f"{path}: images are {images.shape}; model.image wants (N, {channels}, {height}, {width})")
  require(len(images) == len(labels) and len(labels) > 0, f"{path}: {len(images)} images but {len(labels)} labels")
  valid = labels[labels != -100]
  require(valid.size == 0 or (valid.min() >= 0 and valid.max() < recipe["model"]["classes"]),
          f"{path}: a label is outside 0..{recipe['model']['classes'] - 1}")


def load_idx(recipe, folder, split):
  images = read_idx(folder, f"{split}-images-idx3-ubyte")[:, None]
  labels = read_idx(folder, f"{split}-labels-idx1-ubyte").astype(np.int64)
  check_images(recipe, folder, images, labels)
  return ImageSamples(images, labels, per_channel(recipe, "mean", 0.0), per_channel(recipe, "std", 1.0))


def load_tensors(recipe, path):
  tensors = read_safetensors(path)
  require({"images", "labels"} <= set(tensors), f"{path}: must hold the tensors 'images' and 'labels'")
  images, labels = tensors["images"], tensors["labels"]
  require(images.dtype == np.float32 and labels.dtype == np.int64, f"{path}: images must be F32 and labels I64")
  check_images(recipe, path, images, labels)
  return ImageSamples(images, labels)


def load_tokens(recipe, path):
  """Reads raw little-endian u16 or u32 ("tokens"), or every byte of the file as a token
  ("text")."""
  bytes_each = recipe["data"]["token_bytes"] if recipe["data"]["kind"] == "tokens" else 1
  data = read_bytes(path)
  require(len(data) % bytes_each == 0, f"{path}: {len(data)} bytes are no whole number of {bytes_each}-byte tokens")
  tokens = np.frombuffer(data, dtype=f"<u{bytes_each}").astype(np.int64)
  length, vocabulary = recipe["model"]["sequence"], recipe["model"]["vocab_size"]
  require(len(tokens) > length, f"{path}: {len(tokens)} tokens are too few for one sample of {length} + 1")
  require(tokens.max() < vocabulary, f"{path}: token {tokens.max()} is outside the vocabulary of {vocabulary}")
  return TokenSamples(tokens, length)
