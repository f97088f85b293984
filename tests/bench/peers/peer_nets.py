"""The networks of tests/parity/nets.py as PyTorch trains them fastest, with its own fused attention
and GELU: peers for benchmarks.

torch_peer.py and gpu_train.py share this file, so that both compare with the same networks.
"""
import pathlib
import sys

GPT2_SMALL = {"family": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072,
              "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "scale_attn_weights": True,
              "scale_attn_by_inverse_layer_idx": False, "initializer_range": 0.02}


def make_peer(model):
  """Returns the module of the networks, and the network that a recipe's `model` describes, with
  initial weights; "gpt2" is GPT-2 small."""
  import torch
  from torch.nn import functional
  sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "parity"))
  import nets

  class FusedAttention(nets.Attention):
    def forward(self, x):
      batch, length, width = x.shape
      q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
      values = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
      return self.c_proj(values.transpose(1, 2).reshape(batch, length, width))
  nets.Attention = FusedAttention
  nets.gelu_new = lambda x: functional.gelu(x, approximate="tanh")
  net = nets.make_net(GPT2_SMALL if model["family"] == "gpt2" else model)
  with torch.no_grad():
    net.initialise()
  return nets, net
