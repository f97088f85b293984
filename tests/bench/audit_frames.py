#!/usr/bin/env python3
"""Measures the frame times of an audit page while it zooms: audit_frames.py PAGE.html
[WIDTHxHEIGHT]

Each frame of a scripted zoom draws another view: all rows, in to forty rows around the peak, along
the rows, and out again, once as addresses and once as live bytes. The script prints the time
between frames (60 Hz keeps it at 16.7 ms or a multiple) and the time of the page's own drawing. The
browser has no graphics card here: it also composes each frame on the processor, in parallel to the
drawing.
"""
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interfaces"))
from devtools import Browser  # noqa: E402

ZOOM = """
(async () => {
  const rows = audit.program().rows, peak = audit.program().peaks[0].row, home = audit.state().view, frames = 150, times = [], draws = [];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  let last = await frame();
  for (let i = 0; i < 3 * frames; ++i) {
    const part = Math.floor(i / frames), share = (i % frames) / frames, depth = part === 0 ? share : part === 1 ? 1 : 1 - share;
    const width = Math.min(rows, rows * (40 / rows) ** depth), middle = part === 1 ? peak + (share - 0.5) * 400 : peak;
    audit.view({first: middle - width / 2, end: middle + width / 2, low: home.low * (1 - 0.2 * depth), high: home.high});
    const now = await frame();
    times.push(now - last);
    last = now;
    draws.push(audit.draw_times().slice(-1)[0]);
  }
  return {times, draws};
})()
"""


def processor_times(browser, frames):
    """Returns the sorted processor times of the last `frames` frame scripts, in ms, from the
    browser's trace. Processor time excludes what other work of the machine takes. Two scripts run
    in each frame, the page's and ZOOM's, which does almost nothing: the longer half is the
    page's."""
    browser.call("Tracing.end")
    while not any(event["method"] == "Tracing.tracingComplete" for event in browser.events):
        browser.evaluate("new Promise((done) => setTimeout(done, 50))")
    events = [each for event in browser.events if event["method"] == "Tracing.dataCollected" for each in event["params"]["value"]]
    browser.events = []
    return sorted(each["tdur"] / 1000 for each in events if each["name"] == "FireAnimationFrame" and "tdur" in each)[-frames:]


def line(name, values):
    values = sorted(values)
    within = sum(value <= 17 for value in values) / len(values)
    return (f"{name}: median {statistics.median(values):.1f} ms, 95th percentile {values[int(0.95 * len(values))]:.1f} ms, most {values[-1]:.1f} ms, "
            f"{100 * within:.1f}% within 17 ms")


def main():
    page = sys.argv[1]
    width, height = map(int, (sys.argv[2] if len(sys.argv) > 2 else "1440x900").split("x"))
    with Browser(width, height, timeout=120) as browser:
        browser.open(page)
        program = browser.evaluate("(({name, rows, slots}) => ({name, rows, slots}))(audit.program())")
        print(f"{os.path.basename(page)}: {os.path.getsize(page) / 1e6:.2f} MB, {program['rows']} rows, {program['slots']} slots of {program['name']}, {width} x {height}, "
              f"other work: load {os.getloadavg()[0]:.1f}")
        for mode, words in (("map", "addresses"), ("stack", "live bytes")):
            browser.evaluate(f"audit.show({{mode: '{mode}'}})")
            browser.settle()
            browser.call("Tracing.start", transferMode="ReportEvents", traceConfig={"includedCategories": ["devtools.timeline"]})
            measured = browser.evaluate(ZOOM)
            print(line(f"  {words}, between frames", measured["times"]))
            print(line(f"  {words}, drawing", measured["draws"]))
            print(line(f"  {words}, processor time of a frame's script", processor_times(browser, len(measured["draws"]))))


if __name__ == "__main__":
    main()
