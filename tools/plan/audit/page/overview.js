// Draws the strip below the map: live bytes of all rows, and the part of them that the map shows. A
// drag or a click there moves the map.
"use strict";

function draw_overview() {
  const canvas = element_of("overview"), scale = Math.min(2, devicePixelRatio || 1), box = canvas.getBoundingClientRect();
  const width = Math.max(200, Math.floor(box.width)), height = Math.max(20, Math.floor(box.height));
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d"), left = kMargins.left, inner = width - kMargins.left - kMargins.right,
        rows = Math.max(1, shown.program.rows.length);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  draw_curve(pen, left, inner, height);
  const from = left + (view.first / rows) * inner, to = left + (view.end / rows) * inner;
  pen.fillStyle = inks.accent.text;
  pen.globalAlpha = 0.16;
  pen.fillRect(from, 0, Math.max(2, to - from), height);
  pen.globalAlpha = 1;
  pen.strokeStyle = inks.accent.text;
  pen.strokeRect(from + 0.5, 0.5, Math.max(1, to - from - 1), height - 1);
  pen.font = kFont; pen.textAlign = "right"; pen.textBaseline = "middle"; pen.fillStyle = inks.muted.text;
  pen.fillText("live bytes", left - 8, height / 2);
}

// Draws the curve with the highest row of each pixel.
function draw_curve(pen, left, inner, height) {
  const program = shown.program;
  if (!program.curve || program.curve.length !== inner) program.curve = highest_of_pixels(program.live, inner);
  pen.fillStyle = inks.muted.text;
  pen.globalAlpha = 0.55;
  pen.beginPath();
  pen.moveTo(left, height);
  program.curve.forEach((bytes, x) => {
    const y = height - (bytes / Math.max(1, program.live_bytes)) * (height - 3);
    pen.lineTo(left + x, y);
    pen.lineTo(left + x + 1, y);
  });
  pen.lineTo(left + inner, height);
  pen.fill();
  pen.globalAlpha = 1;
}

function highest_of_pixels(live, pixels) {
  return Float64Array.from({length: pixels}, (_, x) => {
    const from = Math.floor((x * live.length) / pixels), to = Math.max(from + 1, Math.floor(((x + 1) * live.length) / pixels));
    return live.subarray(from, to).reduce((most, bytes) => Math.max(most, bytes), 0);
  });
}

function follow_overview(canvas) {
  const move = (event) => {
    const box = canvas.getBoundingClientRect(), inner = box.width - kMargins.left - kMargins.right;
    const row = ((event.clientX - box.left - kMargins.left) / inner) * shown.program.rows.length, half = (view.end - view.first) / 2;
    move_view({...target_view(), first: row - half, end: row + half}, false);
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); move(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons === 1) move(event); });
}
