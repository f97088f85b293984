// Fills boxes in an image directly, which is faster than a canvas for ten thousand boxes that are
// mostly smaller than a pixel. Boxes do not overlap: a pixel's colour is the sum of the parts that
// boxes cover, so that many small ones merge into their mean. A box below two pixels only records
// where its cover begins and ends in a line; settle() sums the lines, so that the cost of a box
// does not depend on its length.
"use strict";

// True if the pixel (x, y) of a pattern has the second ink.
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
  // `grain`: size of a pattern's dots in pixels.
  constructor(width, height, grain = 1) {
    this.grain = grain;
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.words = new Uint32Array(this.image.data.buffer);
    this.bytes = this.image.data;
    this.ground = new Uint32Array(width);  // colour of each column without a box
    this.ground_bytes = new Uint8ClampedArray(this.ground.buffer);
    this.steps = new Float32Array(4 * (width + 1) * height);  // changes of red, green, blue and cover between pixels
    this.stepped = new Uint8Array((width + 1) * height);      // whether a pixel has a change
    this.noted = new Uint8Array(height);                      // whether a line has a change
  }

  clear(ground) {
    this.ground.set(ground);
    for (let y = 0; y < this.height; ++y) this.words.set(this.ground, y * this.width);
  }

  // Draws the box [x0, x1) x [y0, y1), in pixels and fractions of them.
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

  // Records a small box; one that changes no pixel by half a step of its colour is left out.
  cover(x0, y0, x1, y1, paint) {
    if (Math.min(1, x1 - x0) * Math.min(1, y1 - y0) < 0.003) return;
    const first = Math.floor(x0), last = Math.ceil(x1) - 1, left = first === last ? x1 - x0 : first + 1 - x0, right = x1 - last;
    for (let y = Math.floor(y0); y < y1; ++y) {
      const height = Math.min(y + 1, y1) - Math.max(y, y0), line = y * (this.width + 1);
      this.noted[y] = 1;
      this.step(line + first, height * left, paint);
      if (first === last) { this.step(line + first + 1, -height * left, paint); continue; }
      this.step(line + first + 1, height * (1 - left), paint);
      this.step(line + last, height * (right - 1), paint);
      this.step(line + last + 1, -height * right, paint);
    }
  }

  step(pixel, share, paint) {
    const steps = this.steps, at = 4 * pixel;
    this.stepped[pixel] = 1;
    steps[at] += share * paint.r; steps[at + 1] += share * paint.g; steps[at + 2] += share * paint.b; steps[at + 3] += share;
  }

  // Draws the recorded small boxes.
  settle() {
    for (let y = 0; y < this.height; ++y) if (this.noted[y]) this.settle_line(y);
    this.noted.fill(0);
  }

  // Draws one line; a pixel without a change gets the colour of the pixel before it.
  settle_line(y) {
    const {steps, stepped, words, bytes, ground, ground_bytes, width} = this;
    let r = 0, g = 0, b = 0, cover = 0, same = false, under = 0, below = 0, word = 0;
    for (let x = 0, at = y * width, note = y * (width + 1); x < width; ++x, ++at, ++note) {
      if (stepped[note]) {
        const step = 4 * note;
        r += steps[step]; g += steps[step + 1]; b += steps[step + 2]; cover += steps[step + 3];
        same = false;
      }
      if (cover < 0.002) { same = false; continue; }
      if (same && words[at] === under && ground[x] === below) { words[at] = word; continue; }
      under = words[at];
      below = ground[x];
      bytes[4 * at] += r - cover * ground_bytes[4 * x];
      bytes[4 * at + 1] += g - cover * ground_bytes[4 * x + 1];
      bytes[4 * at + 2] += b - cover * ground_bytes[4 * x + 2];
      word = words[at];
      same = true;
    }
    steps.fill(0, 4 * y * (width + 1), 4 * (y + 1) * (width + 1));
    stepped.fill(0, y * (width + 1), (y + 1) * (width + 1));
  }
}
