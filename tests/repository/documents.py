#!/usr/bin/env python3
"""Runs the commands of a document and compares their outputs with the blocks that follow them.

  documents.py BUILD PAGE ...    exits 1 and names the line if a page is wrong

A command is a line indented by four spaces outside of a fence; a heredoc (`cat > FILE <<'END'`) is
written as a file. Commands of `build/reprise` run in the page's order in a folder of their own. A
command whose input file does not exist (a user's model or pictures) is not run, but its options
must be in the help. The same holds for `build/NAME/train` and for make, whose targets and variables
must be in the Makefile. Other commands (of a board, mpirun, a compiler) are not looked at. Each
line of a fence that directly follows a command must be printed by it; "..." matches any text of the
line. A fence whose first line begins with "$ " is a command and its output, which may be wrapped.
Files that a page links to or names in backticks must exist.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARED = ("tools", "tests", "lib", "ports", "cuda", "Makefile")  # parts of the repository that commands name
PATH = re.compile(r"^(lib|cuda|ports|tools|tests)/[\w./-]*$")


def fail(page, line, what):
    sys.exit(f"documents: {page}:{line}: {what}")


class Page:
    """One document: its commands with their line numbers, files and expected outputs."""

    def __init__(self, name):
        self.name, self.commands = name, []
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            self.lines = file.read().split("\n")
        n, last = 0, None
        while n < len(self.lines):
            line = self.lines[n]
            if line.startswith("```"):
                shown, begin = [], n
                n += 1
                while not self.lines[n].startswith("```"):
                    shown.append(self.lines[n])
                    n += 1
                if shown and shown[0].startswith("$ "):  # a command and its output, which may be wrapped
                    self.commands.append({"line": begin + 2, "text": shown[0][2:], "shown": [], "shown_at": begin + 3,
                                          "input": None, "wrapped": " ".join(shown[1:])})
                elif line == "```" and last is not None:
                    last["shown"], last["shown_at"] = shown, begin + 2
                last = None
            elif line.startswith("    "):
                command = {"line": n + 1, "text": line[4:], "shown": [], "shown_at": 0, "input": None}
                heredoc = re.search(r"<<'(\w+)'$", line)
                if heredoc:
                    body = []
                    while self.lines[n + 1].strip() != heredoc.group(1):
                        n += 1
                        body.append(self.lines[n][4:])
                    n += 1
                    command["input"] = "\n".join(body) + "\n"
                while command["text"].endswith("\\"):
                    n += 1
                    command["text"] = command["text"][:-1] + self.lines[n].strip()
                command["text"] = re.sub(r"\s+#\s.*$", "", command["text"])
                self.commands.append(command)
                last = command
            elif line.strip():
                last = None
            n += 1

    def check_paths(self):
        """Requires the files that the page links to, and those of the repository in backticks."""
        folder = os.path.dirname(os.path.join(ROOT, self.name))
        for number, line in enumerate(self.lines, 1):
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", line):
                if "://" not in target and not os.path.exists(os.path.join(folder, target)):
                    fail(self.name, number, f"links to {target}, which is not there")
            for path in re.findall(r"`([^`]+)`", line):
                if PATH.match(path) and not os.path.exists(os.path.join(ROOT, path)):
                    fail(self.name, number, f"names {path}, which is not there")


class Runner:
    """Runs commands in a folder that looks like the repository's root, with a my/ and a build/ of
    its own."""

    def __init__(self, build, scratch):
        self.folder, self.ran, self.looked_up = scratch, 0, 0
        for part in SHARED:
            os.symlink(os.path.join(ROOT, part), os.path.join(scratch, part))
        for part in ("my", "build"):
            os.mkdir(os.path.join(scratch, part))
        os.symlink(os.path.join(os.path.abspath(build), "reprise"), os.path.join(scratch, "build", "reprise"))
        self.helps = {}

    def output(self, command):
        done = subprocess.run(command, shell=True, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True, executable="/bin/bash")
        return done.returncode, done.stdout

    def help_of(self, words):
        """Returns the help of a subcommand, or of the training program for `build/NAME/train`."""
        key = words[1] if words[0] == "build/reprise" else "train PROGRAM"
        if key not in self.helps:
            text = self.output(f"build/reprise {key.split()[0]} --help")[1]
            if key.startswith("train"):
                self.output("build/reprise plan tools/recipes/tiny-gpt.json --binary -o my/help-plan")
                text += self.output("build/reprise train my/help-plan/plan.bin --help")[1]
            self.helps[key] = text
        return self.helps[key]

    def has_inputs(self, words):
        """True if each file that a command reads exists. Its files are the words that look like
        paths and are no outputs."""
        outputs = {"-o", "--log", "--save", "--html", "--svg", "--trace", "--manifest", "--predict-to", "--adapter",
                   "--merged", "--merged-gguf", "--adapter-gguf", "--onnx", "--renew", "--tensorboard"}
        for before, word in zip(words, words[1:]):
            path = word.split("=", 1)[1] if re.match(r"\w+=", word) else word
            is_input = before not in outputs and not word.startswith("-")
            is_path = "/" in path or re.search(r"\.(json|onnx|pt2|gguf|csv|txt)$", path)
            if is_input and is_path and not os.path.exists(os.path.join(self.folder, path)):
                return False
        return True

    def run(self, page, command):
        text, line = command["text"], command["line"]
        if command["input"] is not None:
            for path in re.findall(r"cat >\s*(\S+)", text):
                os.makedirs(os.path.dirname(os.path.join(self.folder, path)), exist_ok=True)
                with open(os.path.join(self.folder, path), "w", encoding="utf-8") as file:
                    file.write(command["input"])
            return
        try:
            words = shlex.split(text)
        except ValueError:
            return
        if not words:
            return
        if words[0] == "make":
            self.look_up_make(page, line, words)
        elif re.match(r"build/[\w-]+/train$", words[0]) or (words[0] == "build/reprise" and not self.has_inputs(words)):
            self.look_up(page, line, words)
        elif words[0] == "build/reprise":
            self.execute(page, command)

    def execute(self, page, command):
        status, printed = self.output(command["text"])
        if status == 1 and "there is no " in printed and "/my/" in printed:  # a file of the user's that a recipe names
            return self.look_up(page, command["line"], shlex.split(command["text"]))
        self.ran += 1
        if status not in (0, 3):
            fail(page, command["line"], f"fails with {status}: {printed[-600:]}")
        words = " ".join(printed.split())
        if not re.search(".*".join(re.escape(part.strip()) for part in command.get("wrapped", "").split("...")), words):
            fail(page, command["shown_at"], f"`{command['text']}` no longer prints this, but: {printed[:1500]}")
        lines = printed.split("\n")
        for number, line in enumerate(command["shown"], command["shown_at"]):
            pattern = re.compile(".*".join(re.escape(part.strip(" ") if n else part.rstrip(" "))
                                           for n, part in enumerate(line.rstrip().split("..."))))
            if not any(pattern.fullmatch(each) for each in lines):
                fail(page, number, f"`{command['text']}` no longer prints \"{line}\" but: {printed[:1500]}")

    def look_up(self, page, line, words):
        self.looked_up += 1
        text = self.help_of(words)
        for word in words[1:]:
            option = word.split("=")[0]
            if option.startswith("--") and not re.search(re.escape(option) + r"\b", text):
                fail(page, line, f"{option} is no option of {' '.join(words[:2])}")

    def look_up_make(self, page, line, words):
        self.looked_up += 1
        with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
            makefile = file.read()
        for word in words[1:]:
            if variable := re.match(r"(\w+)=", word):
                if not re.search(r"\$[({]" + variable.group(1) + r"\b", makefile):
                    fail(page, line, f"{variable.group(1)} is no variable of the Makefile")
                continue
            rule = r"^[^\t#\n]*(?<![\w-])" + re.escape(word) + r"(?![\w-])[^=\n]*:"
            if not word.startswith(("-", "build/")) and not re.search(rule, makefile, re.M):
                fail(page, line, f"{word} is no target of the Makefile")


def main():
    build, pages = sys.argv[1], sys.argv[2:]
    ran = looked_up = 0
    for name in pages:
        page = Page(name)
        page.check_paths()
        with tempfile.TemporaryDirectory() as scratch:
            runner = Runner(build, scratch)
            for command in page.commands:
                runner.run(name, command)
            ran, looked_up = ran + runner.ran, looked_up + runner.looked_up
    print(f"{len(pages)} documents: {ran} commands were run, {looked_up} were looked up")


if __name__ == "__main__":
    main()
