// Manages the tabs next to the map.
"use strict";

function panel_list() {
  return [{id: "peak", label: "Peak and rows", draw: peak_panel},
          shown.data.plans.length > 1 && !shown.data.diff && {id: "front", label: "Front", draw: front_panel},
          shown.data.diff && {id: "diff", label: "Changes", draw: diff_panel}].filter((panel) => panel);
}

function refresh_panels() {
  keeping_focus(() => {
    const panels = panel_list(), current = panels.find((panel) => panel.id === shown.tab) || panels[0];
    fill(element_of("tabs"), panels.map((panel) =>
      make("button", {type: "button", role: "tab", "aria-selected": String(panel === current), "aria-controls": "panel", "data-tab": panel.id,
                      tabindex: panel === current ? 0 : -1, onclick: () => show({tab: panel.id}), onkeydown: step_tab}, panel.label)));
    element_of("panel").setAttribute("aria-label", current.label);
    if (shown.printing) draw_all(panels); else current.draw(element_of("panel"));
  });
}

function draw_all(panels) {
  fill(element_of("panel"), panels.map((panel) => {
    const section = make("section", {class: "printed"});
    panel.draw(section);
    section.prepend(make("h1", {}, panel.label));
    return section;
  }));
}

function step_tab(event) {
  const by = {ArrowLeft: -1, ArrowRight: 1}[event.key], panels = panel_list();
  if (!by) return;
  event.preventDefault();
  event.stopPropagation();
  const at = panels.findIndex((panel) => panel.id === event.target.dataset.tab), next = panels[(at + by + panels.length) % panels.length];
  show({tab: next.id});
  document.querySelector('[data-tab="' + next.id + '"]').focus();
}
