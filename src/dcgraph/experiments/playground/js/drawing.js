// From strokes to an image as MNIST has them. There a digit fills a box of 20 x 20 pixels, and its
// centre of mass is the centre of the image of 28 x 28.

import { randomFrom } from "./random.js";
import { SIDE } from "./adder.js";

const BOX = 20;
const PEN = 0.09; // width of a line, in units of the canvas
const THINNEST = 2.2; // the same in pixels of the image
const THICKEST = 3.0;
const SMALLEST = 0.2; // what is smaller than this is not enlarged to the whole box
const FINE = 4; // a pixel is FINE x FINE samples

// Pixels from -1, the background, to 1. A stroke is a list of points [x, y], both from 0 to 1.
export function imageOf(strokes) {
  const points = strokes.flat();
  if (!points.length) return new Float64Array(SIDE * SIDE).fill(-1);
  const [left, right] = range(points.map(([x]) => x));
  const [top, bottom] = range(points.map(([, y]) => y));
  const extent = Math.max(right - left, bottom - top) + PEN;
  const line = Math.min(THICKEST, Math.max(THINNEST, (PEN * BOX) / Math.max(extent, SMALLEST)));
  const scale = (BOX - line) / Math.max(right - left, bottom - top, SMALLEST);
  const middle = [(left + right) / 2, (top + bottom) / 2];
  const scaled = strokes.map((stroke) =>
    stroke.map(([x, y]) => [(x - middle[0]) * scale + SIDE / 2, (y - middle[1]) * scale + SIDE / 2]),
  );
  const [x, y] = centreOfMass(rendered(scaled, line / 2));
  const centred = scaled.map((stroke) =>
    stroke.map((point) => [point[0] + SIDE / 2 - x, point[1] + SIDE / 2 - y]),
  );
  return rendered(centred, line / 2).map((ink) => 2 * ink - 1);
}

function range(values) {
  return [Math.min(...values), Math.max(...values)];
}

// The share of each pixel that is within a distance of a line.
function rendered(strokes, radius) {
  const size = SIDE * FINE;
  const inked = new Uint8Array(size * size);
  for (const stroke of strokes) {
    stroke.forEach((end, k) => {
      ink(inked, size, stroke[Math.max(0, k - 1)], end, radius);
    });
  }
  const image = new Float64Array(SIDE * SIDE);
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      const pixel = Math.floor(row / FINE) * SIDE + Math.floor(column / FINE);
      image[pixel] += inked[row * size + column] / FINE ** 2;
    }
  }
  return image;
}

function ink(inked, size, [x0, y0], [x1, y1], radius) {
  const sample = (value) => Math.min(size, Math.max(0, Math.floor(value * FINE)));
  const [dx, dy] = [x1 - x0, y1 - y0];
  const length = dx * dx + dy * dy;
  for (let row = sample(Math.min(y0, y1) - radius); row < sample(Math.max(y0, y1) + radius + 1); row++) {
    const y = (row + 0.5) / FINE;
    const last = sample(Math.max(x0, x1) + radius + 1);
    for (let column = sample(Math.min(x0, x1) - radius); column < last; column++) {
      const x = (column + 0.5) / FINE;
      const along = length ? ((x - x0) * dx + (y - y0) * dy) / length : 0;
      const t = Math.min(1, Math.max(0, along));
      if ((x - x0 - t * dx) ** 2 + (y - y0 - t * dy) ** 2 <= radius ** 2) {
        inked[row * size + column] = 1;
      }
    }
  }
}

function centreOfMass(image) {
  let [mass, x, y] = [0, 0, 0];
  image.forEach((value, k) => {
    mass += value;
    x += value * ((k % SIDE) + 0.5);
    y += value * (Math.floor(k / SIDE) + 0.5);
  });
  return [x / mass, y / mass];
}

// Part of an ellipse as points; angles in degrees, clockwise from the right.
function arc(x, y, width, height, from, to) {
  const steps = Math.ceil(Math.abs(to - from) / 10);
  return Array.from({ length: steps + 1 }, (_, k) => {
    const angle = ((from + ((to - from) * k) / steps) * Math.PI) / 180;
    return [x + width * Math.cos(angle), y + height * Math.sin(angle)];
  });
}

// How each digit is written, for those who draw by a key.
const WRITTEN = [
  [arc(0.5, 0.5, 0.22, 0.34, -90, 270)],
  [[[0.38, 0.28], [0.52, 0.15], [0.5, 0.85]]],
  [[...arc(0.5, 0.34, 0.21, 0.19, -170, 30), [0.3, 0.83], [0.74, 0.82]]],
  [[...arc(0.46, 0.33, 0.2, 0.17, -150, 80), ...arc(0.46, 0.66, 0.24, 0.19, -80, 150)]],
  [[[0.36, 0.16], [0.28, 0.52], [0.72, 0.5]], [[0.66, 0.18], [0.62, 0.86]]],
  [
    [[0.7, 0.17], [0.38, 0.18], [0.35, 0.47], ...arc(0.46, 0.65, 0.22, 0.19, -110, 150)],
  ],
  [[[0.62, 0.14], ...arc(0.6, 0.6, 0.27, 0.4, -130, -180), ...arc(0.52, 0.66, 0.19, 0.18, 180, 530)]],
  [[[0.28, 0.2], [0.72, 0.18], [0.44, 0.86]]],
  [
    [
      ...arc(0.5, 0.32, 0.18, 0.16, -40, -270),
      ...arc(0.5, 0.66, 0.21, 0.18, -90, 270),
      ...arc(0.5, 0.32, 0.18, 0.16, 90, -40),
    ],
  ],
  [[...arc(0.5, 0.35, 0.19, 0.19, -20, -370), [0.68, 0.5], [0.6, 0.86]]],
];

// The strokes of a digit, written a little differently for every seed.
export function writtenDigit(digit, seed) {
  const random = randomFrom(7919 * seed + digit);
  const vary = (size) => size * (2 * random.uniform() - 1);
  const [slant, stretch, size] = [vary(0.15), 1 + vary(0.1), 0.95 + vary(0.1)];
  const [x, y] = [vary(0.04), vary(0.04)];
  return WRITTEN[digit].map((stroke) =>
    stroke.map(([a, b]) => [
      0.5 + x + size * stretch * (a - 0.5 - slant * (b - 0.5)),
      0.5 + y + size * (b - 0.5),
    ]),
  );
}
