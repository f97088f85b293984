"""Computes how many blocks of a kernel a multiprocessor runs at once, and which resource limits
them.

The rules are those of NVIDIA's cuda_occupancy.h, the figures those of the CUDA programming guide,
"Compute Capabilities".
"""
from collections import namedtuple

Multiprocessor = namedtuple('Multiprocessor', 'warps blocks registers shared_bytes')
MULTIPROCESSORS = {
    80: Multiprocessor(64, 32, 65536, 164 * 1024),
    87: Multiprocessor(48, 16, 65536, 164 * 1024),
    90: Multiprocessor(64, 32, 65536, 228 * 1024),
}
_PARTITIONS = 4             # parts of a multiprocessor, each with its share of registers and warps
_REGISTERS_AT_ONCE = 256    # granularity of a warp's registers
_RESERVED_SHARED = 1024     # bytes of each block that the driver reserves
_SHARED_AT_ONCE = 128


def _round_up(value, step):
  return -(-value // step) * step


def occupancy(architecture, threads, registers, shared_bytes):
  """Returns (blocks, limit); the limit is 'warps', 'blocks', 'registers' or 'shared'."""
  has = MULTIPROCESSORS[architecture]
  warps = -(-threads // 32)
  warps_by_registers = has.registers // _PARTITIONS // _round_up(registers * 32, _REGISTERS_AT_ONCE) * _PARTITIONS
  limits = {
      'shared': has.shared_bytes // _round_up(shared_bytes + _RESERVED_SHARED, _SHARED_AT_ONCE),
      'registers': warps_by_registers // warps,
      'warps': has.warps // warps,
      'blocks': has.blocks,
  }
  limit = min(limits, key=limits.get)
  return limits[limit], limit
