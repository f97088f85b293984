#!/usr/bin/env python3
"""Measures compiled code: bytes of code, of constant tables and of data by symbol, and the stack of
each function.

  size.py measure OBJECT_OR_ARCHIVE... [--map MAP --archive NAME] -o FILE.json   measures and prints
  size.py diff BEFORE.json AFTER.json                                            prints the differences; status 0

All of it is read from the machine code of the existing build, so that no compiler flag changes for
it. A function's frame is the stack that its instructions use: the registers that it pushes, the
largest amount that it subtracts from the stack's pointer, and the return address. A frame whose
size depends on run time is not included. --map adds the members of an archive that a program has
linked.
"""
import argparse
import json
import re
import subprocess
import sys

TOP = 25
CLASSES = (("code", (".text",)), ("tables", (".rodata", ".data.rel.ro", ".lrodata")), ("data", (".data", ".bss", ".tdata", ".tbss")))


def class_of(section):
    for name, prefixes in CLASSES:
        if any(section == prefix or section.startswith(prefix + ".") for prefix in prefixes):
            if section.startswith(".data.rel.ro") and name == "data":
                continue
            return name
    return None


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"size: {' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


SYMBOL = re.compile(r"^[0-9a-f]+ (.{7}) (\S+)\t([0-9a-f]+) +(?:\.hidden )?(.+)$")


def symbols_of(path):
    """Returns {class: {name: bytes}}. A name in many objects (an inline function) counts once;
    statics of one name are summed."""
    found = {name: {} for name, _ in CLASSES}
    for line in run("objdump", "-t", "-C", path).splitlines():
        match = SYMBOL.match(line)
        if not match:
            continue
        flags, section, size, name = match.group(1), match.group(2), int(match.group(3), 16), match.group(4)
        kind = class_of(section)
        if kind is None or size == 0 or flags[6] not in "FO":
            continue
        entry = found[kind]
        shared = flags[0] in "u!" or flags[1] == "w"
        entry[name] = max(entry.get(name, 0), size) if shared else entry.get(name, 0) + size
    return found


FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^ *[0-9a-f]+:\t([a-z0-9.]+)\s*(.*)$")
X86_TAKES = re.compile(r"^\$0x([0-9a-f]+),%rsp$")
X86_LEA = re.compile(r"^-0x([0-9a-f]+)\(%rsp\),%r(sp|11)$")
ARM_TAKES = re.compile(r"^sp, sp, #0x([0-9a-f]+)(, lsl #12)?")
ARM_PUSH = re.compile(r"\[sp, #-(\d+)\]!")


class Frame:
    def __init__(self):
        self.pushed, self.taken, self.probed, self.aligned, self.arm = set(), 0, 0, 0, 0

    def see(self, name, operands):
        operands = operands.strip()
        if name == "push" and operands.startswith("%"):
            self.pushed.add(operands)
        elif name in ("sub", "subq", "add", "addq", "and", "andq"):
            match = X86_TAKES.match(operands)
            if match:
                value = int(match.group(1), 16)
                value -= (value >> 63) << 64  # adding -128 is shorter than subtracting 128
                if name.startswith("and"):
                    self.aligned = max(self.aligned, -value)
                else:
                    self.taken = max(self.taken, value if name.startswith("sub") else -value)
            elif name == "sub":
                self.see_arm(name, operands)
        elif name == "lea":
            match = X86_LEA.match(operands)
            if match:
                self.probed = max(self.probed, int(match.group(1), 16))
        elif name == "stp" or name == "str":
            self.see_arm(name, operands)

    def see_arm(self, name, operands):
        match = ARM_PUSH.search(operands)
        if match:
            self.arm = max(self.arm, int(match.group(1)))
        match = ARM_TAKES.match(operands)
        if match:
            self.taken = max(self.taken, int(match.group(1), 16) << (12 if match.group(2) else 0))

    def bytes(self):
        if self.arm or not (self.pushed or self.taken or self.probed):
            return self.arm + self.taken
        return 8 + 8 * len(self.pushed) + max(self.taken, self.probed) + self.aligned


def stacks_of(path):
    """Returns {function: bytes}, the maximum of each name."""
    stacks, name, frame = {}, None, Frame()
    for line in run("objdump", "-d", "-C", "--no-show-raw-insn", path).splitlines() + ["0 <>:"]:
        match = FUNCTION.match(line)
        if match or line == "0 <>:":
            if name:
                stacks[name] = max(stacks.get(name, 0), frame.bytes())
            name, frame = match and match.group(1), Frame()
            continue
        match = INSTRUCTION.match(line)
        if match and name:
            frame.see(match.group(1), match.group(2))
    return stacks


def linked_of(path, archive):
    """Returns {member: {class: bytes}} of an archive, from a linker's map."""
    members = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    start = text.find("Linker script and memory map")
    if start < 0:
        sys.exit(f"size: {path}: no linker's map: it lacks \"Linker script and memory map\"")
    # The format is " .text  0xADDRESS 0xSIZE FILE"; a long section's name has a line of its own.
    for section, size, file in re.findall(r"^ (\.\S+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (\S.*)$", text[start:], re.M):
        match = re.match(r".*" + re.escape(archive) + r"\((.+)\)$", file)
        kind = class_of(section)
        if not match or kind is None or int(size, 16) == 0:
            continue
        entry = members.setdefault(match.group(1), {name: 0 for name, _ in CLASSES})
        entry[kind] += int(size, 16)
    return members


def total(values):
    return sum(values.values())


def measure(arguments):
    answer = {"code": {}, "tables": {}, "data": {}, "stack": {}, "linked": {}}
    for path in arguments.objects:
        found = symbols_of(path)
        for kind, entries in found.items():
            for name, size in entries.items():
                answer[kind][name] = max(answer[kind].get(name, 0), size) if name in answer[kind] else size
        for name, size in stacks_of(path).items():
            answer["stack"][name] = max(answer["stack"].get(name, 0), size)
    if not answer["code"]:
        sys.exit(f"size: {' '.join(arguments.objects)}: no function in it")
    if arguments.map:
        answer["linked"] = linked_of(arguments.map, arguments.archive)
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump(answer, file, indent=1, sort_keys=True)
        file.write("\n")
    show(answer)


def largest(entries):
    return sorted(entries.items(), key=lambda item: (-item[1], item[0]))[:TOP]


def show(answer):
    print("   code    stack  function")
    for name, size in largest(answer["code"]):
        print(f"{size:7}  {answer['stack'].get(name, 0):7}  {name[:150]}")
    print("\n  stack  function")
    for name, size in largest(answer["stack"]):
        print(f"{size:7}  {name[:150]}")
    for kind, title in (("tables", "constant table"), ("data", "data")):
        print(f"\n  bytes  {title}")
        for name, size in largest(answer[kind]):
            print(f"{size:7}  {name[:150]}")
    print("\nin all: " + ", ".join(f"{total(answer[kind])} bytes of {kind} in {len(answer[kind])} symbols" for kind, _ in CLASSES))
    if answer["linked"]:
        print("\n   code   tables     data  linked by the program")
        for member, sizes in sorted(answer["linked"].items(), key=lambda item: (-sum(item[1].values()), item[0])):
            print(f"{sizes['code']:7}  {sizes['tables']:7}  {sizes['data']:7}  {member}")
        sums = [sum(sizes[kind] for sizes in answer["linked"].values()) for kind, _ in CLASSES]
        print(f"{sums[0]:7}  {sums[1]:7}  {sums[2]:7}  of the library in all: {sum(sums)} bytes")


def differences(before, after):
    """Returns [(change, before, after, name)], the largest first."""
    rows = []
    for name in before.keys() | after.keys():
        one, other = before.get(name, 0), after.get(name, 0)
        if one != other:
            rows.append((other - one, one, other, name))
    return sorted(rows, key=lambda row: (-abs(row[0]), row[3]))


def diff(arguments):
    files = []
    for path in (arguments.before, arguments.after):
        with open(path, encoding="utf-8") as file:
            files.append(json.load(file))
    before, after = files
    changed = False
    for kind in ("code", "stack", "tables", "data"):
        rows = differences(before[kind], after[kind])
        if rows:
            changed = True
            print(f" change   before    after  {kind}")
        for change, one, other, name in rows:
            print(f"{change:+7}  {one:7}  {other:7}  {name[:150]}")
        if rows and kind != "stack":
            print(f"{total(after[kind]) - total(before[kind]):+7}  {total(before[kind]):7}  {total(after[kind]):7}  in all\n")
        elif rows:
            print()
    if before["linked"] and after["linked"]:
        sums = [{member: sum(sizes.values()) for member, sizes in each["linked"].items()} for each in files]
        for change, one, other, name in differences(*sums):
            changed = True
            print(f"{change:+7}  {one:7}  {other:7}  linked of {name}")
    if not changed:
        print("nothing differs")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("objects", nargs="+")
    one.add_argument("--map")
    one.add_argument("--archive", default="libreprise.a")
    one.add_argument("-o", "--output", required=True)
    one.set_defaults(run=measure)
    two = commands.add_parser("diff")
    two.add_argument("before")
    two.add_argument("after")
    two.set_defaults(run=diff)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
