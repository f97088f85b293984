#!/usr/bin/env python3
"""Counts comments and lines that break the rules of CONTRIBUTING.md, for each top-level folder.

  comments.py           prints the counts as a table, in the form of comments_limits.txt
  comments.py FILE ...  lists each place in these files: FILE:LINE: the fault: the line

tests/repository/comments_test.sh compares the counts with the limits.
"""
import re
import subprocess
import sys

FOLDERS = ("lib", "cuda", "ports", "tools", "tests")
MAX_CODE, MAX_COMMENT = 120, 100
CODE, OTHERS = (".h", ".cpp", ".cu", ".c"), (".json", ".js", ".sh", ".py", ".txt", ".ld", ".awk")
UNCLEAR_START = re.compile(r"(Of|The same|That|What|Behind|Beside|Whoever)\b")
# Verbs in the third person with which a comment on a function may begin. It is a list because
# "Bytes" and "Rows" end like verbs.
VERBS = set("""
Accepts Accumulates Acquires Adds Adjusts Advances Aligns Allocates Allows Answers Appends Applies Arranges Asks Asserts
Assigns Attaches Averages Backs Balances Begins Binds Blends Blocks Borrows Breaks Broadcasts Builds Calls Cancels
Casts Changes Checks Chooses Clamps Clears Closes Collects Combines Compares Compiles Completes Composes Compresses
Computes Concatenates Connects Constructs Consumes Continues Converts Copies Counts Creates Cuts Deallocates Decides
Decodes Decompresses Deduces Defines Deletes Derives Describes Destroys Detaches Detects Determines Disables Discards
Distributes Divides Does Downloads Draws Drops Emits Empties Enables Encodes Ends Enqueues Ensures Enters Erases
Estimates Evaluates Exchanges Executes Expands Expects Explains Exports Extends Extracts Fails Fetches Fills Finds
Finishes Fits Flattens Flushes Folds Follows Forces Formats Forwards Frees Gathers Generates Gets Gives Groups Guards
Guesses Halts Handles Hashes Holds Imports Includes Increments Initialises Inserts Installs Interleaves Interpolates
Interprets Intersects Inverts Invokes Iterates Joins Jumps Keeps Launches Leaves Limits Links Lists Loads Locks Logs
Looks Lowers Makes Maps Marks Masks Matches Maximises Measures Merges Minimises Mixes Models Modifies Moves
Multiplies Names Normalises Notes Notifies Numbers Occupies Offers Opens Orders Overrides Packs Pads Parses Partitions
Passes Pauses Performs Permutes Picks Places Plans Plays Pops Predicts Prefetches Prepares Prepends Presents Prices
Prints Processes Produces Programs Promises Proves Provides Pushes Puts Queues Quotes Raises Ranks Reads Rebuilds Receives
Recomputes Records Reduces Refills Refuses Registers Rejects Releases Reloads Removes Renames Renders Renews Reopens
Reorders Repairs Repeats Replaces Replays Reports Represents Requests Requires Reserves Resets Resizes Resolves Restarts
Restores Resumes Retains Retries Returns Reuses Reverses Rewinds Rewrites Rotates Rounds Runs Samples Saves Scales Scans
Scatters Schedules Searches Selects Sends Separates Serialises Sets Shapes Shares Shifts Shortens Shows Shrinks
Shuffles Shuts Signals Simulates Skips Sleeps Slices Solves Sorts Specialises Splits Squeezes Stages Starts States
Stops Stores Streams Strips Subtracts Sums Suspends Swaps Switches Synchronises Takes Tells Terminates Tests Throws
Tokenizes Touches Tracks Trains Transforms Translates Transposes Traverses Treats Trims Truncates Tries Tunes
Unlocks Unpacks Updates Uses Validates Verifies Views Visits Waits Walks Warns Widens Wraps Writes Yields Zeroes
""".split())
STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
NO_FUNCTION = re.compile(r"\s*(#|(using|typedef|struct|class|enum|union|namespace|case|return|for|if|while)\b|"
                         r"static_assert|REPRISE_\w+\(|public:|private:|})")
FUNCTION = re.compile(r"^[^=(]*[\w>&*\]]\s*\b(operator\s*[^\s(]+|~?\w+)\s*\(")


def files_of(folder):
    listed = subprocess.run(["git", "ls-files", folder], check=True, capture_output=True, text=True).stdout.split()
    return [name for name in listed if name.endswith(CODE + OTHERS) and not name.startswith("tests/golden/")]


def unclear_starts(name, lines):
    """Returns the faults of a file that is no C++: of its comments only the start is judged."""
    marker = "//" if name.endswith((".json", ".js")) else "#"
    found, before, words_before = [], False, ""
    for i, line in enumerate(lines):
        text = line.strip()
        is_comment = text.startswith(marker)
        words = text[len(marker):].strip() if is_comment else ""
        if is_comment and not (before and words_before) and UNCLEAR_START.match(words):
            found.append((i, "comment has an unclear start", line))
        before, words_before = is_comment, words
    return found


def is_function(line):
    """True if a line begins the declaration of a function, and not of a variable, a type or a
    macro."""
    line = re.sub(r"^\s*(template\s*<.*>|\[\[\w+(\(.*?\))?\]\])\s*", "", line)
    line = re.sub(r"alignas\([^)]*\)|__\w+__(\(\w+(, *\w+)*\))?|decltype\([^)]*\)|std::function<[^;]*>\s", "", line)
    is_constructor = re.match(r"\s*(explicit |constexpr )*[A-Z]\w+\(", line)
    return bool(is_constructor or not NO_FUNCTION.match(line) and FUNCTION.match(line))


def faults(name):
    """Returns the faults of a file as (line number, fault, line), and the number of its comments on
    functions."""
    with open(name, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    if not name.endswith(CODE):
        return unclear_starts(name, lines), 0
    found, functions, before, words_before = [], 0, False, ""
    for i, line in enumerate(lines):
        text = line.strip()
        is_comment = text.startswith("//")
        code = STRING.sub(lambda match: "x" * len(match.group(0)), line)
        comment = text if is_comment else code[code.find("//"):] if "//" in code else ""
        words = re.sub(r"^//+[/!<]*\s*", "", comment)
        if is_comment and len(line) > MAX_COMMENT:
            found.append((i, "comment is wider than 100", line))
        if not is_comment and len(line) > MAX_CODE:
            found.append((i, "line is wider than 120", line))
        if comment and not (is_comment and before and words_before) and UNCLEAR_START.match(words):
            found.append((i, "comment has an unclear start", line))
        if is_comment and not before and name.endswith(".h"):
            end = i
            while end < len(lines) and lines[end].strip().startswith("//"):
                end += 1
            while end < len(lines) and re.match(r"\s*(template\s*<[^()]*>|\[\[nodiscard\]\])\s*$", lines[end]):
                end += 1
            if end < len(lines) and is_function(lines[end]):
                functions += 1
                first = re.match(r"[\w']+", words)
                verb = first.group(0) if first else ""
                if verb not in VERBS and not words.startswith("True if"):
                    found.append((i, "comment on a function starts with no verb", line))
        before, words_before = is_comment, words
    return found, functions


KINDS = ("comment has an unclear start", "comment on a function starts with no verb", "line is wider than 120",
         "comment is wider than 100")


def main():
    if len(sys.argv) > 1:
        for name in sys.argv[1:]:
            for i, kind, line in faults(name)[0]:
                print(f"{name}:{i + 1}: {kind}: {line.strip()[:110]}")
        return
    print(f"{'folder':8}{'unclear start':>15}{'no verb':>9}{'of functions':>14}{'wide lines':>12}{'wide comments':>15}")
    for folder in FOLDERS:
        counts, functions = dict.fromkeys(KINDS, 0), 0
        for name in files_of(folder):
            found, more = faults(name)
            functions += more
            for _, kind, _ in found:
                counts[kind] += 1
        unclear, no_verb, wide, wide_comments = counts.values()
        print(f"{folder:8}{unclear:15}{no_verb:9}{functions:14}{wide:12}{wide_comments:15}")


if __name__ == "__main__":
    main()
