#!/usr/bin/env python3
"""Opens the audit's pages in a browser, operates them like a user, and compares the pages' content
with the manifests.

audit_page_test.py REPRISE FOLDER: writes the pages plain, sweep, diff, ranks and hostile into
FOLDER.
"""
import base64
import concurrent.futures
import csv
import io
import json
import os
import random
import re
import subprocess
import sys
import zlib

from devtools import Browser

ALIGNMENT = 256
failures = []
checks = 0


def check(wanted, found, what):
    global checks
    checks += 1
    if wanted != found:
        failures.append(f"{what}: {str(found)[:300]} instead of {str(wanted)[:300]}")


def region(manifest, name):
    return next((each["planned_bytes"] for each in manifest["regions"] if each["name"] == name), 0)


def slots_of(manifest, program):
    return [slot for slot in manifest["slots"] if slot["program"] == program]


def live_bytes(manifest, program):
    """Returns the live bytes at each row, from the slots' lifetimes alone."""
    live = [0] * len(next(each for each in manifest["programs"] if each["name"] == program)["rows"])
    for slot in slots_of(manifest, program):
        for row in range(slot["first_row"], slot["last_row"] + 1):
            live[row] += slot["bytes"]
    return live


def uses(program, reference, key):
    return [r for r, row in enumerate(program["rows"]) if reference in row[key] or (key == "writes" and row["scratch"] == reference)]


def padded(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


def bytes_words(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024


def texts(browser, selector):
    return browser.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")


def test_texts(browser, manifest):
    """Checks the page before any click: the header's numbers, a bar for each program, the live
    tensors at the peak."""
    header = browser.text("#facts")
    for words in (bytes_words(manifest["planned_bytes"]), f"{manifest['planned_bytes']:,} B", bytes_words(manifest["budget_bytes"]),
                  f"{100 * manifest['planned_bytes'] / manifest['budget_bytes']:.1f}% used", bytes_words(manifest["store_all_bytes"]),
                  f"{100 * manifest['extra_forward_cost']:.1f}%"):
        check(True, words in header, f"{words} in the header")
    check([bytes_words(program["bytes"]) for program in manifest["programs"]], texts(browser, ".bar-bytes"), "bytes of the bars")
    check([f"{len(program['rows'])} rows" for program in manifest["programs"]], texts(browser, ".bar-note"), "rows of the bars")
    for name in ("state", "carried"):
        check(True, f"{region(manifest, name):,} B" in browser.text(".outside"), f"{name} beside the bars")
    check(True, f"{manifest['outside']['worker_stack_bytes']:,} B" in browser.text(".outside"), "the stack beside the bars")
    browser.evaluate("audit.show({tab: 'peak', row: null, sort: 'size'})")
    live = sorted(((each["name"], bytes_words(each["bytes"])) for each in manifest["peak"]["live"]))
    listed = sorted(zip(texts(browser, "#panel .items .item-name"), texts(browser, "#panel .items b")))
    check(live, listed, "what lives at the peak")
    first = manifest["programs"][0]
    for label, size in (("region", first["bytes"]), ("lower bound", first["live_bytes"]), ("fragmentation", first["bytes"] - first["live_bytes"])):
        check(True, f"{label}{bytes_words(size)} {size:,} B" in browser.text("#panel"), f"{label} in the panel")


def test_numbers(browser, manifest):
    plan = browser.evaluate("audit.plan()")
    for key in ("planned_bytes", "store_all_bytes", "budget_bytes", "plan_hash"):
        check(manifest[key], plan[key], key)
    check([each["name"] for each in manifest["programs"]], plan["programs"], "programs")
    for program in manifest["programs"]:
        shown = browser.evaluate(f"audit.program({json.dumps(program['name'])})")
        live = live_bytes(manifest, program["name"])
        check(live, shown["live"], f"live bytes of {program['name']}")
        check([row["live_bytes"] for row in program["rows"]], shown["live"], f"the manifest's live bytes of {program['name']}")
        check([program["bytes"], program["live_bytes"], program["times"]], [shown["bytes"], shown["live_bytes"], shown["times"]], program["name"])
        if live:
            check(max(live), program["live_bytes"], f"the lower bound of {program['name']}")
            check(max(live), shown["peaks"][0]["bytes"], f"the highest row of {program['name']}")
            check(program["bytes"] - max(live), shown["fragmentation"], f"fragmentation of {program['name']}")
            peak = shown["peaks"][0]["row"]
            check(sum(padded(s["bytes"]) - s["bytes"] for s in slots_of(manifest, program["name"]) if s["first_row"] <= peak <= s["last_row"]), shown["padding"],
                  f"padding of {program['name']}")
    peak = browser.evaluate("audit.program('micro_first')")["peaks"][0]
    check(manifest["peak"]["bytes"], peak["bytes"], "the manifest's peak")


def test_slots(browser, manifest):
    """Checks everything that the page shows of slots, for some of them."""
    program = manifest["programs"][0]
    base = region(manifest, "state") + region(manifest, "carried")
    slots, live = slots_of(manifest, program["name"]), live_bytes(manifest, program["name"])
    for slot in random.Random(17).sample(slots, min(40, len(slots))):
        shown = browser.evaluate(f"audit.slot('{program['name']}:{slot['id']}')")
        name = f"slot {slot['id']}"
        for key in ("name", "kind", "dtype", "shape", "bytes", "offset", "layer", "first_row", "last_row"):
            check(slot[key], shown[key], f"{key} of {name}")
        check(base + slot["offset"], shown["address"], f"address of {name}")
        check(uses(program, f"slot:{slot['id']}", "writes"), shown["writers"], f"writers of {name}")
        check(uses(program, f"slot:{slot['id']}", "reads"), shown["readers"], f"readers of {name}")
        without = max((bytes_ - (slot["bytes"] if slot["first_row"] <= row <= slot["last_row"] else 0)) for row, bytes_ in enumerate(live))
        check(max(live) - without, shown["facts"]["without it"]["number"], f"the peak without {name}")
        action = program["rows"][shown["writers"][0] if shown["writers"] else slot["first_row"]]["action"]
        check(action, shown["facts"].get("kept by", {}).get("number"), f"what keeps {name}")
        if action is not None:
            what = manifest["actions"][action]
            for word in (what["action"], *(str(what[key]) for key in ("link", "tape", "boundary", "first") if key in what)):
                check(True, word in shown["facts"]["kept by"]["text"], f"{word} in what keeps {name}")
        test_price(manifest, slot, shown)


def test_price(manifest, slot, shown):
    if "prices" not in manifest:
        check("no price: made from a manifest", shown["facts"]["price"]["text"], "a price of no prices")
        return
    price = next((each for each in manifest["prices"]["by_bytes"] if each["bytes"] == slot["bytes"]), None)
    check(price["less"] if price else None, shown["facts"]["price"].get("number"), f"price of slot {slot['id']}")
    if price and price["less"] is None:
        check(True, "does not fit" in shown["facts"]["price"]["text"], "a price that does not fit")


def largest_slot(manifest):
    return max(slots_of(manifest, "micro_first"), key=lambda slot: slot["bytes"] * (slot["last_row"] - slot["first_row"]))


def test_pointer(browser, manifest):
    browser.evaluate("audit.show({selected: null, row: null, mode: 'map'})")
    browser.settle()
    slot = largest_slot(manifest)
    key = f"micro_first:{slot['id']}"
    place = browser.evaluate(f"audit.place('{key}')")
    browser.move(place["x"], place["y"])
    check(key, browser.evaluate("audit.state().hovered"), "hovered")
    check(True, f"{slot['bytes']:,} B" in browser.text("#slot"), "bytes in the panel")
    check(True, slot["name"][:20] in browser.text("#tip"), "the name in the tip")
    browser.click(place["x"], place["y"])
    check(key, browser.evaluate("audit.state().selected"), "clicked")
    check("#slot=" + key, browser.evaluate("location.hash"), "the link to a slot")
    row = browser.evaluate("audit.selected().writers.concat(audit.selected().readers)[0]")
    browser.click_on(f"#slot [data-row='{row}']")
    check(row, browser.evaluate("audit.state().row"), "a click on a row that uses the slot")
    check(f"#row=micro_first:{row}", browser.evaluate("location.hash"), "the link to a row")
    browser.settle()
    other = browser.evaluate("[...document.querySelectorAll('#panel .items [data-slot]')].map((e) => e.dataset.slot)")
    live = [s for s in slots_of(manifest, "micro_first") if s["first_row"] <= row <= s["last_row"]]
    check(sorted(f"micro_first:{s['id']}" for s in live)[:1], sorted(other)[:1], "what lives in the row")
    check(min(200, len(live)), len(other), "how many live in the row")
    browser.click_on("#panel .items [data-slot]")
    check(other[0], browser.evaluate("audit.state().selected"), "a click in the list")
    browser.evaluate("location.hash = '#slot=micro_first:0'")
    browser.wait_for("audit.state().selected === 'micro_first:0'")
    browser.evaluate("location.hash = '#row=micro_first:1'")
    browser.wait_for("audit.state().row === 1")
    for broken in ("#slot=nothing:1", "#slot=micro_first:999999", "#row=micro_first:999999", "#%%%", "#slot=<b>"):
        browser.evaluate(f"location.hash = {json.dumps(broken)}")
    browser.press("Escape")
    browser.evaluate("document.activeElement.blur()")
    browser.press("Escape")
    check([None, None], browser.evaluate("[audit.state().selected, audit.state().row]"), "Escape")


def test_zoom(browser, manifest):
    rows = manifest["rows"]
    browser.evaluate("document.getElementById('map').focus()")
    browser.press("0")
    browser.settle()
    home = browser.evaluate("audit.state().view")
    check([0, rows], [home["first"], home["end"]], "all rows")
    box = browser.evaluate("(() => { const b = document.getElementById('map').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
    browser.drag(box[0] + box[2] * 0.4, box[1] + box[3] * 0.3, box[0] + box[2] * 0.6, box[1] + box[3] * 0.6)
    browser.settle()
    brushed = browser.evaluate("audit.state().view")
    check(True, brushed["end"] - brushed["first"] < 0.3 * rows and brushed["high"] - brushed["low"] < 0.5 * (home["high"] - home["low"]), "a drag zooms")
    browser.wheel(box[0] + box[2] / 2, box[1] + box[3] / 2, -240)
    browser.wait_for(f"audit.state().view.end - audit.state().view.first < {brushed['end'] - brushed['first']} * 0.9 || audit.state().view.end - audit.state().view.first === 2")
    wheeled = browser.evaluate("audit.state().view")
    browser.press("-")
    check(True, browser.evaluate("audit.state().view.end - audit.state().view.first") > wheeled["end"] - wheeled["first"], "- zooms out")
    browser.press("+")
    browser.settle()
    before = browser.evaluate("audit.state().view")
    browser.press("ArrowRight" if before["first"] < rows / 2 else "ArrowLeft")
    browser.press("ArrowUp")
    browser.settle()
    after = browser.evaluate("audit.state().view")
    check(True, after["first"] != before["first"] and after["low"] > before["low"], "arrows move")
    browser.press("a")
    browser.settle()
    check(0, browser.evaluate("audit.state().view.low"), "the whole arena")
    browser.press("0")
    browser.settle()
    check(home, browser.evaluate("audit.state().view"), "home again")


def test_tools(browser, manifest):
    for mode in ("stack", "map"):
        browser.click_on(f"[data-choice='mode:{mode}']")
        check(mode, browser.evaluate("audit.state().mode"), "picture")
        browser.settle()
    for colour in ("link", "dtype", "kind"):
        browser.click_on(f"[data-choice='colour:{colour}']")
        check(colour, browser.evaluate("audit.state().colour"), "colour")
        browser.settle()
    browser.click_on("[data-choice='patterns']")
    check(True, browser.evaluate("audit.state().patterns"), "patterns")
    browser.click_on("[data-choice='patterns']")
    dark = browser.evaluate("audit.state().dark")
    browser.click_on("#theme")
    check(not dark, browser.evaluate("audit.state().dark"), "the theme's button")
    browser.media("light" if not dark else "dark")
    browser.click_on("#theme")
    for program in manifest["programs"]:
        browser.click_on(f"[data-program='{program['name']}']")
        check(program["name"], browser.evaluate("audit.state().program"), "a program's bar")
        browser.settle()
    browser.click_on("[data-program='micro_first']")
    for sort, key in (("life", lambda s: s["last_row"] - s["first_row"]), ("size", lambda s: s["bytes"])):
        browser.click_on(f"[data-sort='{sort}']")
        by_id = {f"micro_first:{s['id']}": s for s in slots_of(manifest, "micro_first")}
        listed = browser.evaluate("[...document.querySelectorAll('#panel .items [data-slot]')].map((e) => e.dataset.slot)")
        keys = [key(by_id[each]) for each in listed]
        check(sorted(keys, reverse=True), keys, f"sorted by {sort}")
    if "prices" in manifest:
        browser.click_on("[data-sort='price']")
        check("price", browser.evaluate("audit.state().sort"), "sorted by price")
        check(True, str(manifest["smaller"]["why"])[:30] in browser.text("#panel"), "why a smaller budget does not fit")
        browser.click_on("[data-sort='size']")
    peaks = browser.evaluate("audit.program().peaks")
    for peak in peaks:
        browser.click_on(f".hill[data-row='{peak['row']}']")
        check(peak["row"], browser.evaluate("audit.state().row"), "a hill")
        check(True, f"Row {peak['row']:,}" in browser.text("#panel"), "the row's panel")
    browser.evaluate("audit.show({row: null, selected: null})")


def test_pictures_agree(browser, manifest):
    """Checks that a slot's position in the map has its colour, and that pointing at it in the stack
    finds it too."""
    slot = largest_slot(manifest)
    key = f"micro_first:{slot['id']}"
    browser.evaluate("audit.show({mode: 'map', colour: 'kind', selected: null})")
    browser.settle()
    painted = browser.evaluate(f"(() => {{ const p = audit.place('{key}'), b = document.getElementById('map').getBoundingClientRect(), i = shown.program.by_id.get('{key}').paint; "
                               "const [r, g, blue] = audit.pixel(p.x - b.x, p.y - b.y); return [r === i.r, g === i.g, blue === i.b]; })()")
    check([True, True, True], painted, "the colour of a slot where it lies")
    browser.evaluate("audit.show({mode: 'stack', colour: 'kind'})")
    browser.settle()
    names = browser.evaluate(f"""(() => {{ const b = document.getElementById('map').getBoundingClientRect(), found = new Set(), p = drawing.place, middle = ({slot['first_row']} + {slot['last_row']} + 1) / 2;
      for (let y = p.top; y < p.top + p.height; y += 1) {{ const item = item_at(p.x_of(Math.floor(middle) + 0.5), y); if (item) found.add(item.id); }} return [...found]; }})()""")
    check(True, key in names, "the slot in the stack of its row")
    browser.evaluate("audit.show({mode: 'map'})")
    browser.settle()


def test_search(browser, manifest):
    browser.evaluate("document.activeElement.blur()")
    browser.press("/")
    check("search", browser.evaluate("document.activeElement.id"), "/ goes to the search")
    slot = largest_slot(manifest)
    browser.type(slot["name"][:40])
    found = browser.evaluate("audit.state().found")
    check(True, len(found) > 0, "something is found")
    browser.press("Enter")
    check(True, slot["name"][:40].lower() in (browser.evaluate("audit.selected()") or {"name": ""})["name"].lower(), "Enter chooses it")
    browser.press("/")
    browser.evaluate("document.getElementById('search').value = ''")
    browser.type("row 3")
    browser.press("Enter")
    check(3, browser.evaluate("audit.state().row"), "a row is found")
    browser.press("/")
    browser.evaluate("document.getElementById('search').value = ''")
    browser.type("there is no such name")
    check([], browser.evaluate("audit.state().found"), "what is not there")
    browser.press("Escape")
    browser.evaluate("audit.show({row: null, selected: null})")


def test_proof(browser, reprise, folder, manifest):
    """Checks that the command below the map makes the plan that is shown."""
    words = browser.text("#proof code:not(:first-child), #proof span:last-child code").split()
    check(["reprise", "plan", "-o", "DIR"], words[:2] + words[-2:], "the command of the proof")
    subprocess.run([reprise, *words[1:-1], os.path.join(folder, "proof")], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(folder, "proof", "manifest.json"), encoding="utf-8") as file:
        check(manifest["plan_hash"], json.load(file)["plan_hash"], "the plan that the command makes")


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv(browser, manifest):
    browser.press("a")
    browser.settle()
    table = read_csv(browser.evaluate("audit.csv('slots')"))
    base = region(manifest, "state") + region(manifest, "carried")
    slots = slots_of(manifest, "micro_first")
    check(len(slots) + len(manifest["state"]) + len(manifest["carried"]), len(table), "lines of the CSV")
    by_id = {line["id"]: line for line in table}
    for slot in slots:
        line = by_id[f"micro_first:{slot['id']}"]
        name = slot["name"] if slot["name"][:1] not in "=+-@\t\r" else "'" + slot["name"]
        check([name, str(slot["bytes"]), str(base + slot["offset"])], [line["name"], line["bytes"], line["address"]], "a line of the CSV")
    peak = browser.evaluate("audit.program().peaks[0].row")
    live = [s for s in slots if s["first_row"] <= peak <= s["last_row"]]
    check(sum(s["bytes"] for s in live), sum(int(line["bytes"]) for line in read_csv(browser.evaluate("audit.csv('live')"))), "the sum of what lives at the peak")
    browser.press("0")


def test_download(browser, folder):
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
    browser.click_on("#panel .list-head .csv")
    wanted = browser.evaluate("audit.csv('live')")
    name = browser.evaluate("file_name('live')") + ".csv"
    for _ in range(250):
        if os.path.exists(os.path.join(folder, name)) and os.path.getsize(os.path.join(folder, name)) == len(wanted.encode()):
            break
        browser.evaluate("new Promise((done) => setTimeout(done, 20))")
    with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
        check(wanted, file.read(), "the file that is saved")


def test_keys_panel(browser):
    browser.evaluate("audit.select('micro_first:1')")
    browser.press("?")
    check(False, browser.evaluate("document.getElementById('keys').hidden"), "? shows the keys")
    browser.press("Escape")
    check([True, "micro_first:1"], browser.evaluate("[document.getElementById('keys').hidden, audit.state().selected]"), "Escape hides them first")
    browser.press("Escape")
    check(None, browser.evaluate("audit.state().selected"), "and then lets go")


def test_paper(browser, manifest):
    """Checks that a printout has all panels, the proof on the first sheet, and patterns, and that
    the page is unchanged afterwards."""
    browser.evaluate("audit.show({tab: 'front'})")
    before = browser.evaluate("audit.state()")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    check(["Peak and rows", "Front"], texts(browser, "#panel h1"), "panels on paper")
    check([True, False], browser.evaluate("[audit.state().patterns, audit.state().dark]"), "patterns on white paper")
    check("proof", browser.evaluate("document.getElementById('facts').previousElementSibling.id"), "the proof on the first sheet")
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    browser.settle()
    check(before, browser.evaluate("audit.state()"), "after printing")
    printed = base64.b64decode(browser.call("Page.printToPDF", landscape=True, printBackground=True, preferCSSPageSize=True)["data"])
    check(3, printed.count(b"/Type /Page\n") or len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)), "sheets of paper")


def test_narrow(browser):
    """Checks that on a telephone the panels are below the map, and that nothing is wider than the
    window."""
    browser.resize(420, 800)
    browser.settle()
    wide, map_bottom, panel_top, tall = browser.evaluate("[document.documentElement.scrollWidth, document.getElementById('drawing').getBoundingClientRect().bottom, "
                                                         "document.getElementById('panels').getBoundingClientRect().top, document.getElementById('panels').getBoundingClientRect().height]")
    check([True, True, True], [wide <= 420, panel_top >= map_bottom, tall > 300], f"a narrow window ({wide}, {map_bottom}, {panel_top}, {tall})")
    browser.resize()
    browser.settle()


def test_front(browser, plans):
    check("front", browser.evaluate("audit.state().tab"), "a sweep begins with its front")
    for index, manifest in enumerate(plans):
        browser.evaluate(f"(() => {{ const s = document.getElementById('front-slider'); s.value = {index}; s.dispatchEvent(new Event('input', {{bubbles: true}})); }})()")
        check(manifest["plan_hash"], browser.evaluate("audit.plan().plan_hash"), "the slider's plan")
        check(True, manifest["plan_hash"] in browser.text("#proof"), "the plan's hash below the map")
        check(True, f"--budget {manifest['budget_bytes']} -o DIR" in browser.text("#proof") or manifest["budget_bytes"] == 40 << 20, "the command that makes this plan")
        browser.settle()
    browser.evaluate("document.getElementById('front-slider').focus()")
    browser.press("ArrowLeft")
    check(plans[-2]["plan_hash"], browser.evaluate("audit.plan().plan_hash"), "the slider by key")
    table = read_csv(browser.evaluate("audit.csv('front')"))
    check([str(m["planned_bytes"]) for m in plans], [line["planned_bytes"] for line in table], "the front's CSV")


def test_measured(browser, manifest):
    """Checks that the measurements of a run are shown next to the planned values."""
    measured, beside = manifest["measured"], browser.text(".outside")
    for size in (measured["process_peak_bytes"], measured["process_peak_bytes"] - manifest["planned_bytes"], measured["stack_bytes"]):
        check(True, f"{size:,} B" in beside, f"{size:,} measured bytes")
    check(True, "heap calls0 in 7 steps" in beside, "measured calls of the heap")
    check(True, "62.5 ms" in browser.text("#facts"), "the measured step")
    by_name = {each["name"]: each["high_water_bytes"] for each in measured["regions"]}
    notes = [f", measured {bytes_words(by_name[program['name']])}" if by_name[program["name"]] else "" for program in manifest["programs"]]
    check([True] * len(notes), [note.endswith(words) for note, words in zip(texts(browser, ".bar-note"), notes)], "measured bytes of the bars")


def test_wire(browser, manifest):
    """Checks a plan for ranks: the bar above the map shows the pending bytes of each row, and the
    overview the bytes sent."""
    check(True, f"sent a step{bytes_words(manifest['sent_bytes'])}" in browser.text(".outside"), "what is sent")
    check(True, f"each of {manifest['ranks'] - 1} other rank" in browser.text(".outside"), "to whom")
    for program in manifest["programs"]:
        size = {f"slot:{slot['id']}": slot["bytes"] for slot in slots_of(manifest, program["name"])}
        under_way, rows = set(), []
        for row in program["rows"]:
            if row["op"] == "share" and row["pass"] == "start":
                under_way.add(row["writes"][0])
            rows.append(sum(size[slot] for slot in under_way))
            if row["op"] == "share" and row["pass"] == "wait":
                under_way.discard(row["writes"][0])
        runs = browser.evaluate(f"audit.program({json.dumps(program['name'])})")["wire"]
        shown = [0] * len(rows)
        for run in runs:
            shown[run["first"]:run["end"]] = [run["bytes"]] * (run["end"] - run["first"])
        check(rows, shown, f"bytes under way in {program['name']}")
        check([], [b for a, b in zip(runs, runs[1:]) if a["end"] == b["first"] and a["bytes"] == b["bytes"]], "runs that are one")
    browser.evaluate("audit.show({mode: 'map'})")
    browser.settle()
    most = max(browser.evaluate("shown.program.wire"), key=lambda run: run["bytes"])
    browser.evaluate(f"audit.view({{first: {most['first']} - 1, end: {most['end']} + 1}})")
    browser.settle()
    here, wanted = browser.evaluate(f"""(() => {{ const s = drawing.place.scale, x = drawing.place.x_of({(most["first"] + most["end"]) / 2}), y = kWireBand.top + kWireBand.height / 2;
      const {{r, g, b}} = stage_paint('transfer'); return [audit.pixel(Math.round(x * s), Math.round(y * s)).slice(0, 3), [r, g, b]]; }})()""")
    check(wanted, here, "the bar where most is under way")
    browser.click_on("[data-program='update']")
    check([[], 44], browser.evaluate("[shown.program.wire, map_top(shown.program)]"), "a program that shares nothing has no bar")
    browser.settle()


def test_diff(browser, plans, diff):
    check(["diff", 1], browser.evaluate("[audit.state().tab, audit.state().plan_index]"), "a diff begins with the changes of B")
    changes = [each for each in diff["slots"] if each["program"] == "micro_first"]
    check(len(changes), len(read_csv(browser.evaluate("audit.csv('changes')"))), "changes")
    ids = {i for each in changes for i in each["a"]}
    ghosts = browser.evaluate("audit.ghosts()")
    check({f"micro_first:{i}" for i in ids}, {ghost["id"] for ghost in ghosts}, "ghosts")
    a = {f"micro_first:{s['id']}": s for s in slots_of(plans[0], "micro_first")}
    base, rows = region(plans[1], "state") + region(plans[1], "carried"), len(plans[1]["programs"][0]["rows"])
    for ghost in ghosts:
        slot = a[ghost["id"]]
        check([base + slot["offset"], base + slot["offset"] + slot["bytes"]], [ghost["low"], ghost["high"]], "where a ghost lies")
        check(True, 0 <= ghost["first"] < ghost["end"] <= rows, "when a ghost lives")
    for kind in sorted({each["change"] for each in changes}):
        browser.click_on(f"[data-change='{kind}']")
        check(sum(each["change"] == kind for each in changes), len(read_csv(browser.evaluate("audit.csv('changes')"))), kind)
    browser.click_on("[data-change='all']")
    browser.click_on("#panel .changes button")
    check(True, browser.evaluate("audit.state().selected") is not None, "a click on a change")
    browser.click_on("[data-side='0']")
    check(plans[0]["plan_hash"], browser.evaluate("audit.plan().plan_hash"), "the map of A")
    browser.settle()
    browser.click_on("[data-side='1']")
    browser.click_on("[data-choice='ghosts']")
    check(False, browser.evaluate("audit.state().ghosts"), "ghosts off")


def test_hostile(browser, manifest):
    """Checks that names that would be markup, formulas or invisible are shown as texts."""
    check(False, browser.evaluate("'hacked' in window"), "no name runs")
    check(1, browser.evaluate("document.querySelectorAll('script[type]').length"), "one script of data")
    check(0, browser.evaluate("document.querySelectorAll('body b b, body img, body iframe, #slot script').length"), "no markup from names")
    check(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), True, "nothing is wider than the window")
    for slot in slots_of(manifest, "micro_first")[:60]:  # a browser warns if more links follow in so short a time
        shown = browser.evaluate(f"(() => {{ audit.select('micro_first:{slot['id']}'); const s = audit.selected(); return [s.bytes, s.name === {json.dumps(slot['name']) if len(slot['name']) < 1000 else 's.name'}, "
                                 "document.getElementById('slot').textContent.length]; })()")
        check([slot["bytes"], True], shown[:2], "a slot of a hostile name")
        check(True, shown[2] < 4000, "a long name is shortened")
    browser.settle()


RECIPE = "tools/recipes/resnet20-fashion.json"
HOSTILE = ["</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>", "\"><b>bold</b>", "=HYPERLINK(\"x\")", "@DATA@",
           "line\nline\ttab\u0001\u0007\u202eback", "\u2028", "'", "`${window.hacked = 1}`", "x" * (1 << 20)]


def ask(reprise, *words):
    return json.loads(subprocess.run([reprise, *map(str, words), "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def packed_data(path):
    with open(path, encoding="utf-8") as file:
        return json.loads(zlib.decompress(base64.b64decode(file.read().split('id="data">')[1].split("</script>")[0])))


def with_hostile_names(manifest):
    """Replaces every name that a user may choose by one of HOSTILE, and keeps names with a fixed
    meaning."""
    links = {name: HOSTILE[i % len(HOSTILE)] + str(i) for i, name in enumerate(manifest["links"])}
    names = {slot["name"]: HOSTILE[i % len(HOSTILE)] for i, slot in enumerate(manifest["slots"])}
    for each in (*manifest["slots"], *manifest["peak"]["live"]):
        each["name"] = names[each["name"]]
    for slot in manifest["slots"]:
        slot["layer"] = links.get(slot["layer"], HOSTILE[0])
    for program in manifest["programs"]:
        for row in program["rows"]:
            row["link"] = links.get(row["link"], row["link"])
    manifest["links"] = [links[name] for name in manifest["links"]]
    manifest["recipe"]["name"] = HOSTILE[0]
    return manifest


def measured_run(manifest):
    """Returns what a training program would have written into its manifest."""
    regions = [{"name": each["name"], "high_water_bytes": each["planned_bytes"] - (256 if each["name"] == "evaluate" else 0)} for each in manifest["regions"]]
    return {"regions": regions, "heap_calls_in_steps": 0, "process_peak_bytes": manifest["planned_bytes"] + 12345678, "stacks": [{"worker": 0, "bytes": 4321}],
            "stack_bytes": 4321, "steps": 7, "step_seconds": 0.0625}


def make_pages(reprise, folder):
    """Makes the pages. Returns the plans that each must show, as other commands report them.
    Independent commands run in parallel."""
    path = lambda name: os.path.join(folder, name)
    run = lambda *words: subprocess.run([reprise, "audit", *map(str, words)], check=True, stderr=subprocess.DEVNULL)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as beside:
        swept = beside.submit(run, RECIPE, "--html", path("sweep.html"), "--sweep")
        plain = beside.submit(run, RECIPE, "--html", path("plain.html"))
        ranks = beside.submit(run, RECIPE, "--ranks", 2, "--html", path("ranks.html"))
        priced, own = beside.submit(ask, reprise, "audit", RECIPE, "--prices"), beside.submit(ask, reprise, "audit", RECIPE)
        swept.result()
        budgets = [plan["budget_bytes"] for plan in packed_data(path("sweep.html"))["plans"]]
        check(True, 6 <= len(budgets) <= 12, "plans of a sweep")
        plans = list(beside.map(lambda budget: ask(reprise, "audit", RECIPE, "--budget", budget), budgets))
        hostile = with_hostile_names(own.result())
        smaller = dict(plans[0], measured=measured_run(plans[0]))
        for name, manifest in (("smaller", smaller), ("hostile", hostile)):
            with open(path(name + ".json"), "w", encoding="utf-8") as file:
                json.dump(manifest, file)
        pages = [beside.submit(run, path("hostile.json"), "--html", path("hostile.html")), beside.submit(run, RECIPE, "--diff", path("smaller.json"), "--html", path("diff.html"))]
        diff = ask(reprise, "audit", RECIPE, "--diff", path("smaller.json"))
        for page in (plain, ranks, *pages):
            page.result()
        return {"plain": {"plans": [priced.result()]}, "sweep": {"plans": plans}, "diff": {"plans": [ask(reprise, "audit", RECIPE), smaller], "diff": diff},
                "hostile": {"plans": [hostile]}, "ranks": {"plans": [ask(reprise, "audit", RECIPE, "--ranks", 2)]}}


def close_page(browser, name):
    check([], browser.console(), f"{name}: the console")
    check([f"{name}.html"], [os.path.basename(url.split("#")[0]) for url in browser.requests() if url != "about:blank" and not url.startswith("blob:")], f"{name}: requests")


def main():
    reprise, folder = sys.argv[1:]
    pages = make_pages(reprise, folder)
    with Browser() as browser:
        def opened(name, fragment=""):
            browser.open(os.path.join(folder, name + ".html"), fragment)
            return pages[name]["plans"]

        manifest = opened("plain", "#slot=micro_first:1")[0]
        check("micro_first:1", browser.evaluate("audit.state().selected"), "a link opened")
        for test in (test_texts, test_numbers, test_slots, test_pointer, test_zoom, test_tools, test_pictures_agree, test_search, test_csv):
            test(browser, manifest)
        test_download(browser, folder)
        test_keys_panel(browser)
        test_narrow(browser)
        close_page(browser, "plain")
        test_front(browser, opened("sweep"))
        browser.evaluate("audit.show({plan_index: 1})")
        test_proof(browser, reprise, folder, pages["sweep"]["plans"][browser.evaluate("audit.state().plan_index")])
        test_paper(browser, manifest)
        close_page(browser, "sweep")
        test_diff(browser, opened("diff"), pages["diff"]["diff"])
        test_measured(browser, pages["diff"]["plans"][1])
        close_page(browser, "diff")
        test_wire(browser, opened("ranks")[0])
        close_page(browser, "ranks")
        test_hostile(browser, opened("hostile")[0])
        close_page(browser, "hostile")
    for failure in failures[:40]:
        print(failure)
    print(f"the audit's page: {checks} checks, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
