// Shows the plan's name and main numbers, the theme, and the command that proves the plan.
"use strict";

function refresh_header() {
  const plan = shown.plan, m = plan.manifest;
  element_of("title").textContent = short_name(plan.name, 80);
  element_of("subtitle").textContent = [m.strategy, plural(m.rows, "row") + " a micro-batch", "plan " + m.plan_hash].join("  \u00b7  ");
  fill(element_of("facts"),
       big_fact("planned", bytes_words(m.planned_bytes), count_words(m.planned_bytes) + " B"),
       plan.budget && big_fact(plan.budget.name, bytes_words(plan.budget.bytes), percent_words(plan.budget.used / plan.budget.bytes) + " used"),
       big_fact("storing all", bytes_words(m.store_all_bytes), "this plan takes " + percent_words(m.planned_bytes / m.store_all_bytes)),
       big_fact("extra work", percent_words(m.extra_forward_cost), "of a step\u2019s forward and backward"),
       m.predicted_seconds !== null && m.predicted_seconds !== undefined && big_fact("a step", seconds_words(m.predicted_seconds), "predicted"),
       m.measured && m.measured.step_seconds && big_fact("a step", seconds_words(m.measured.step_seconds),
                                                         "measured, median of " + m.measured.steps));
  refresh_proof();
}

function big_fact(label, value, note) {
  return make("div", {class: "fact", "data-fact": label}, make("span", {class: "label"}, label), make("b", {}, value), make("small", {}, note));
}

function refresh_proof() {
  const command = (shown.data.commands || [])[shown.plan_index];
  fill(element_of("proof"),
       make("span", {}, "Plan ", make("code", {}, shown.plan.manifest.plan_hash)),
       command ? make("span", {}, "Proof: ", make("code", {}, short_name(command, 400)),
                      ", then compile DIR/plan.h: the compiler proves it, or names the first row and slot that break a rule.")
               : make("span", {}, "Proof: the plan.h that was written with this manifest. Whoever compiles it has it proved, row by row."));
}

function follow_theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => set_theme(dark.matches));
  element_of("theme").addEventListener("click", () => set_theme(!shown.dark));
  set_theme(dark.matches);
  addEventListener("beforeprint", () => print_theme(true));
  addEventListener("afterprint", () => print_theme(false));
}

function set_theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  element_of("theme").textContent = dark ? "Light" : "Dark";
  if (shown.program) show({dark}); else shown.dark = dark;
}

// Sets the theme for printing: white paper, patterns because it may have no colour, and all panels
// because it has no tabs.
let before_print = null;
function print_theme(printing) {
  if (printing) before_print = {dark: shown.dark, patterns: shown.patterns};
  if (!before_print) return;
  document.documentElement.dataset.paper = String(printing);
  element_of(printing ? "facts" : "chart").before(element_of("proof"));  // on the first sheet
  set_theme(printing ? false : before_print.dark);
  show({printing, patterns: printing || before_print.patterns});
  draw(performance.now());
  if (!printing) before_print = null;
}
