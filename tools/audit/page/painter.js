// Fills boxes in an image by hand, which is faster than a canvas where there are ten thousand of them and most are smaller than a pixel.
// Boxes do not overlap, so that a pixel's colour is the sum of what each box covers of it: many small ones merge into their mean. A box below
// two pixels only notes where its cover begins and ends in a line; settle() sums the lines up, so that a box costs the same however long it is.
"use strict";

// Whether the pixel (x, y) of a pattern has the second ink.
const kTextures = {
  none: null,
  lines: (x, y) => y % 5 === 0,
  bars: (x, y) => x % 5 === 0,
  dots: (x, y) => x % 4 === 0 && y % 4 === 0,
  grid: (x, y) => x % 6 === 0 || y % 6 === 0,
  crosses: (x, y) => (x + y) % 8 === 0 || (x - y) % 8 === 0,
  hatch: (x, y) => (x + y) % 5 < 2,
  stripes: (x, y) => (x - y + 100000) % 12 < 5,
};

class Painter {
  // Patterns are drawn with a grain of so many pixels.
  constructor(width, height, grain = 1) {
    this.grain = grain;
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.words = new Uint32Array(this.image.data.buffer);
    this.bytes = this.image.data;
    this.ground = new Uint32Array(width);  // what a column shows where there is no box
    this.ground_bytes = new Uint8ClampedArray(this.ground.buffer);
    this.steps = new Float32Array(4 * (width + 1) * height);  // of red, green, blue and cover, from each pixel of a line to the next
    this.stepped = new Uint8Array(height);                    // whether a line has any
  }

  clear(ground) {
    this.ground.set(ground);
    for (let y = 0; y < this.height; ++y) this.words.set(this.ground, y * this.width);
  }

  // The box [x0, x1) x [y0, y1), in pixels and parts of them.
  box(x0, y0, x1, y1, paint, texture = "none") {
    x0 = Math.max(0, x0); y0 = Math.max(0, y0); x1 = Math.min(this.width, x1); y1 = Math.min(this.height, y1);
    if (x1 <= x0 || y1 <= y0) return;
    if (x1 - x0 >= 2 && y1 - y0 >= 2) this.fill(Math.round(x0), Math.round(y0), Math.round(x1), Math.round(y1), paint, texture);
    else this.cover(x0, y0, x1, y1, paint);
  }

  fill(x0, y0, x1, y1, paint, texture) {
    const word = paint.word;
    for (let y = y0; y < y1; ++y) {
      const from = y * this.width + x0, to = y * this.width + x1;
      if (to - from > 16) this.words.fill(word, from, to); else for (let at = from; at < to; ++at) this.words[at] = word;
    }
    const second = kTextures[texture];
    if (!second) return;
    const grain = this.grain, ink = (paint.second = paint.second || mixed(paint, colour(paint.light ? "#000000" : "#ffffff"), 0.45)).word;
    for (let y = y0; y < y1; ++y) {
      for (let x = x0; x < x1; ++x) if (second((x / grain) | 0, (y / grain) | 0)) this.words[y * this.width + x] = ink;
    }
  }

  // What changes no pixel by half a step of its colour is left out.
  cover(x0, y0, x1, y1, paint) {
    if (Math.min(1, x1 - x0) * Math.min(1, y1 - y0) < 0.003) return;
    const first = Math.floor(x0), last = Math.ceil(x1) - 1, left = first === last ? x1 - x0 : first + 1 - x0, right = x1 - last;
    for (let y = Math.floor(y0); y < y1; ++y) {
      const height = Math.min(y + 1, y1) - Math.max(y, y0), line = 4 * y * (this.width + 1);
      this.stepped[y] = 1;
      this.step(line + 4 * first, height * left, paint);
      if (first === last) { this.step(line + 4 * first + 4, -height * left, paint); continue; }
      this.step(line + 4 * first + 4, height * (1 - left), paint);
      this.step(line + 4 * last, height * (right - 1), paint);
      this.step(line + 4 * last + 4, -height * right, paint);
    }
  }

  step(at, share, paint) {
    const steps = this.steps;
    steps[at] += share * paint.r; steps[at + 1] += share * paint.g; steps[at + 2] += share * paint.b; steps[at + 3] += share;
  }

  // Draws what was noted of the small boxes.
  settle() {
    for (let y = 0; y < this.height; ++y) if (this.stepped[y]) this.settle_line(y);
    this.stepped.fill(0);
  }

  settle_line(y) {
    const {steps, bytes, ground_bytes, width} = this, line = 4 * y * (width + 1);
    let r = 0, g = 0, b = 0, cover = 0;
    for (let x = 0, step = line, at = 4 * y * width; x < width; ++x, step += 4, at += 4) {
      r += steps[step]; g += steps[step + 1]; b += steps[step + 2]; cover += steps[step + 3];
      if (cover < 0.002) continue;
      bytes[at] += r - cover * ground_bytes[4 * x];
      bytes[at + 1] += g - cover * ground_bytes[4 * x + 1];
      bytes[at + 2] += b - cover * ground_bytes[4 * x + 2];
    }
    steps.fill(0, line, line + 4 * (width + 1));
  }
}
