"""The machine that a script runs on: its processor's name, cores and caches, and how busy other
programs keep it.

Reason: a page of results names its processor, and figures of a busy machine differ from those of an
idle one.
"""
import os
import pathlib
import re
import resource
import time

CPU = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")
ARM_PARTS = {"0xd08": "Cortex-A72", "0xd0b": "Cortex-A76", "0xd0c": "Neoverse N1", "0xd40": "Neoverse V1", "0xd42": "Cortex-A78AE",
             "0xd49": "Neoverse N2", "0xd4f": "Neoverse V2"}


def cpuinfo():
  """Returns the fields of the first processor in /proc/cpuinfo."""
  fields = {}
  for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
    key, _, value = line.partition(":")
    fields.setdefault(key.strip(), value.strip())
  return fields


def core_name(fields):
  """Returns the micro-architecture, or family and model if this function has no name for them."""
  if "CPU part" in fields:
    return ARM_PARTS.get(fields["CPU part"], f"part {fields['CPU part']}")
  family, model, stepping = (int(fields.get(key) or 0) for key in ("cpu family", "model", "stepping"))
  unknown = f"family {family}, model {model}"
  if fields.get("vendor_id") == "AuthenticAMD":
    zen4 = model in range(0x10, 0x20) or model in range(0x60, 0x80) or model in range(0xa0, 0xb0)
    return {23: "Zen" if model < 0x30 else "Zen 2", 25: "Zen 4" if zen4 else "Zen 3", 26: "Zen 5"}.get(family, unknown)
  skylake = "Skylake-SP" if stepping < 5 else "Cascade Lake" if stepping < 10 else "Cooper Lake"
  intel = {85: skylake, 106: "Ice Lake", 108: "Ice Lake", 143: "Sapphire Rapids", 207: "Emerald Rapids", 173: "Granite Rapids", 174: "Granite Rapids"}
  return intel.get(model, unknown) if family == 6 else unknown


def processor_name():
  """Returns a name such as "AMD EPYC 9654 (Zen 4)"; a virtual machine may report "AMD EPYC (Zen
  4)"."""
  fields = cpuinfo()
  name = re.sub(r"\((R|TM|C)\)|@.*|\bCPU\b|\bProcessor\b|\b\d+-Core\b", " ", fields.get("model name", ""))
  return f"{' '.join(name.split()) or os.uname().machine} ({core_name(fields)})"


def caches():
  """Returns sizes such as {"L1d": "32K", "L2": "1024K", "L3": "32768K"}: the first processor's
  caches without those of instructions only."""
  found = {}
  for index in sorted(CPU.glob("index*")):
    level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
    if kind != "Instruction":
      found[f"L{level}" + ("d" if kind == "Data" else "")] = size
  return found


def memory_bytes():
  return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def load_average():
  return os.getloadavg()[0]


def busy_seconds():
  """Returns the busy seconds of all processors since the machine started, including those that a
  hypervisor took from it."""
  user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
  return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")


def own_seconds():
  """Returns the processor seconds of this process and of its children that have ended."""
  return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Neighbours:
  """Measures the share of the processors' time that other programs have used since the object was
  made."""

  def __init__(self):
    self.start = self.now()

  @staticmethod
  def now():
    return time.monotonic(), busy_seconds(), own_seconds()

  def share(self):
    passed, busy, own = (now - then for now, then in zip(self.now(), self.start))
    return max(0.0, busy - own) / (passed * os.cpu_count())
