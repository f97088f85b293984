"""The model on paper (paper_model.py) beside what was measured: kernels that others have written and timed, and ours on the one card they met.

Here because a model that nobody has put beside a card says nothing of its error. The kernels' counts are in tests/golden/cuda/others.txt, which
says whose they are; nothing but counts and figures has been taken from them.
"""
from collections import namedtuple

# name, architecture, multiprocessors, GHz, bf16 and f32 multiply-adds a clock, L2 bytes a clock, DRAM in GB/s: data sheets, but for L2 (assumed).
CARDS = {
    'A100': ('A100 SXM4 80 GB', 80, 108, 1.41, 1024, 1.0, 64, 5120 / 108, 2039),
    'A5000': ('RTX A5000', 86, 64, 1.695, 512, 1.0, 128, 5120 / 108, 768),
    'A6000': ('RTX A6000', 86, 84, 1.80, 512, 1.0, 128, 5120 / 108, 768),
    'H200': ('H200 SXM', 90, 132, 1.83, 2048, 0.63, 128, 5120 / 132, 4800),
}

# `parts`: kernels with the flops of each, in any unit. `measured`: TF/s.
Measured = namedtuple('Measured', 'title card parts of measured source')
FLASH, SGEMM, OURS = (f'[{letter}]' for letter in 'abc')
FORWARD, BACKWARD = r'flash_fwd_kernel, D = {}', r'flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel, D = {}'
both = lambda D: ((FORWARD.format(D), 4), (BACKWARD.format(D), 10))
MEASURED = (
    Measured('FlashAttention 2, forward and backward, D = 64, T 16384', 'A100', both(64), 'bf16', 176, FLASH),
    Measured('FlashAttention 2, forward and backward, D = 128, T 16384', 'A100', both(128), 'bf16', 203, FLASH),
    Measured('FlashAttention 2, forward, D = 64, T 8192', 'A5000', ((FORWARD.format(64), 1),), 'bf16', 81.86, '[d]'),
    Measured('SGEMM 4096, blocks of 128 x 128', 'A6000', (('sgemm2DBlocktiling', 1),), 'f32', 15.97, SGEMM),
    Measured('the same by vectors', 'A6000', (('sgemmVectorize', 1),), 'f32', 18.24, SGEMM),
    Measured('the same, K 16', 'A6000', (('sgemmAutotuned', 1),), 'f32', 19.72, SGEMM),
    Measured('the same, warps of 64 x 64', 'A6000', (('sgemmWarptiling', 1),), 'f32', 21.78, SGEMM),
    Measured('ours: product 8192 x 3072 -> 768, bf16', 'H200', (('product bf16, 128 x 128', 1),), 'bf16', 273.7, OURS),
    Measured('ours: product 8192 x 768 -> 3072, bf16', 'H200', (('product bf16, 128 x 128', 1),), 'bf16', 263.4, OURS),
    Measured('ours: 3 x 3 of 64 channels, 56 x 56, bf16', 'H200', (('convolution 3x3 of 64 channels, bf16', 1),), 'bf16', 173.8, OURS),
    Measured('ours: 3 x 3 of 256 channels, 14 x 14, bf16', 'H200', (('convolution 3x3 of 128 channels or more, bf16', 1),), 'bf16', 220.3, OURS),
)
SOURCES = """\
[a] the repository's README, `assets/flash2_a100_fwd_bwd_benchmark.png`, without a mask. [b] the repository's README, of matrices of
4096 x 4096. [c] `tests/bench/GPU_RESULTS.md`, of 2026-11-27. [d] github.com/gpu-mode/ring-attention/issues/10, without a mask. The kernels
of [a], [b] and [d] that were measured are of earlier versions, or by another compiler. Peaks are data sheets' at boost clock, which a card
under load may not hold.
"""
STEP_ON_H200_MS = 40.0  # of GPT-2 small as paper_steps.py has it: [c]


def table(share_of):
  """`share_of(kernel, card)`: the share of the peak that it reaches on paper, in (0, 1]; kernels that are not ours are those of others.txt."""
  lines = ['| kernel | card | on paper | measured | paper / measured | source |', '|---|---|---|---|---|---|']
  ratios = {}
  for each in MEASURED:
    card = CARDS[each.card]
    peak = 2 * card[2] * card[3] * 1e-3 * (card[4] if each.of == 'bf16' else card[6])  # TF/s
    total = sum(flops for _, flops in each.parts)
    paper = peak * total / sum(flops / share_of(kernel, each.card) for kernel, flops in each.parts)
    ratios.setdefault(card[1], []).append(paper / each.measured)
    lines.append(f'| {each.title} | {card[0]} | {paper:.1f} TF/s | {each.measured} TF/s | {paper / each.measured:.2f} | {each.source} |')
  return '\n'.join(lines), {architecture: (min(of), max(of)) for architecture, of in ratios.items()}
