// Draws a bar for each program, all to one scale, and lists the memory outside of the arena.
"use strict";

function refresh_programs() {
  const plan = shown.plan, m = plan.manifest, budget = plan.budget ? plan.budget.end : 0,
        whole = Math.max(m.planned_bytes, budget < 3 * m.planned_bytes ? budget : 0);
  const bars = make("div", {class: "bars", role: "group", "aria-label": "Programs"},
                    m.programs.map((program, i) => program_bar(plan, program, i, whole)));
  fill(element_of("programs"), bars, outside_list(m));
}

function program_bar(plan, program, index, whole) {
  const share = (bytes) => ((100 * bytes) / whole).toFixed(3) + "%", m = plan.manifest, chosen = shown.program.name === program.name;
  const measured = measured_bytes(m, program.name);
  return make("button", {type: "button", class: "bar", "aria-pressed": String(chosen), "data-program": program.name,
                         title: "Show " + program.name + " (" + (index + 1) + ")",
                         onclick: () => show_program(program.name)},
    make("span", {class: "bar-name"}, program.name, program.times > 1 ? make("small", {}, " \u00d7" + program.times) : null),
    make("span", {class: "bar-track"},
         make("i", {class: "part state", style: "width:" + share(plan.state_bytes)}),
         make("i", {class: "part carried", style: "width:" + share(plan.carried_bytes)}),
         make("i", {class: "part region", style: "width:" + share(program.bytes)}),
         plan.budget && plan.budget.end <= whole ? make("i", {class: "mark budget", style: "left:" + share(plan.budget.end)}) : null,
         measured ? make("i", {class: "mark measured", style: "left:" + share(plan.program_base + measured)}) : null),
    make("span", {class: "bar-bytes"}, bytes_words(program.bytes)),
    make("span", {class: "bar-note"}, plural(unpacked_length(program.rows), "row"), measured ? ", measured " + bytes_words(measured) : ""));
}

function unpacked_length(table) { return table ? table.length : 0; }

function measured_bytes(manifest, name) {
  const region = ((manifest.measured || {}).regions || []).find((each) => each.name === name);
  return region ? region.high_water_bytes : 0;
}

function outside_list(m) {
  const plan = shown.plan, inside = [["state", exact_bytes(plan.state_bytes)], ["gradients", exact_bytes(plan.carried_bytes)]];
  for (const [level, words] of [["disk", "on disk"], ["host", "on the host"]]) {
    if (plan.regions.has(level)) inside.push([words, exact_bytes(plan.regions.get(level).planned_bytes)]);
  }
  if (m.ranks) inside.push(["sent a step", sent_words(m)]);
  const outside = Object.entries(m.outside || {}).flatMap(([name, value]) => outside_lines(name, value)), measured = measured_lines(m);
  return make("div", {class: "outside"},
    make("div", {}, make("h2", {}, make("i", {class: "key state"}), make("i", {class: "key carried"}), "In every program"), fact_list(inside)),
    make("div", {}, make("h2", {}, "Outside the arena"), fact_list(outside)),
    measured.length > 0 && make("div", {}, make("h2", {}, "Measured"), fact_list(measured)));
}

// Returns the lines of one entry of the manifest's "outside": a list of unplanned items, or bytes
// by name.
function outside_lines(name, value) {
  if (Array.isArray(value)) return [["not planned", make("div", {class: "not-planned"}, value.map((word) => short_name(word, 60)).join(", "))]];
  if (typeof value === "number") {
    return [name.endsWith("_bytes") ? [kind_words(name.replace(/_bytes$/, "")), exact_bytes(value)] : [kind_words(name), count_words(value)]];
  }
  if (value && typeof value === "object") return Object.entries(value).flatMap(([inner, each]) => outside_lines(inner, each));
  return [[kind_words(name), short_name(String(value), 60)]];
}

function measured_lines(m) {
  const measured = m.measured || {}, lines = [];
  if (measured.process_peak_bytes) {
    lines.push(["whole process", exact_bytes(measured.process_peak_bytes)], ["beside the arena", exact_bytes(measured.process_peak_bytes - m.planned_bytes)]);
  }
  if (measured.stack_bytes) lines.push(["deepest stack", exact_bytes(measured.stack_bytes)]);
  if (measured.heap_calls_in_steps !== undefined) lines.push(["heap calls", count_words(measured.heap_calls_in_steps) + " in " + plural(measured.steps, "step")]);
  return lines;
}
