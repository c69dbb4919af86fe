// A chain of discrete nodes, and the gradient at each of them: forward and backward by hand.
//
// A node takes a vector u: theta = C u, z = softmax((theta + beta G) / tau), v = C^T z + b u with
// b = 1 where DropRes keeps the residual. A rotation Q follows, which neither grows nor shrinks a
// gradient, so that what happens to it is the nodes' doing. The loss of an example is the mean
// square between the end of the chain and a random target.

import { linear, softmax, transposed } from "./numbers.js";
import { draws, randomFrom } from "./random.js";

export const WIDTH = 16;
export const CATEGORIES = 10;
export const LONGEST = 20;

const EXAMPLES = 64;

// The weights and the examples of a chain; of the longest one, so that a shorter one begins alike.
export function chainOf(seed) {
  const random = randomFrom(seed);
  const nodes = Array.from({ length: LONGEST }, () => ({
    codebook: {
      shape: [CATEGORIES, WIDTH],
      data: draws(CATEGORIES * WIDTH, random.normal),
    },
    rotation: rotation(random),
  }));
  const vectors = () => Array.from({ length: EXAMPLES }, () => draws(WIDTH, random.normal));
  return { nodes, inputs: vectors(), targets: vectors() };
}

// Noise of scale 1, and a uniform number for the gate, for every node and example.
export function noiseOf(seed) {
  const random = randomFrom(seed);
  const forEach = (draw) =>
    Array.from({ length: LONGEST }, () => Array.from({ length: EXAMPLES }, draw));
  const gumbel = forEach(() => draws(CATEGORIES, random.gumbel));
  return { gumbel, gates: forEach(random.uniform) };
}

// A random orthogonal matrix, by Gram and Schmidt.
function rotation(random) {
  const rows = [];
  while (rows.length < WIDTH) {
    const row = draws(WIDTH, random.normal);
    for (const other of rows) {
      const along = dot(row, other);
      for (let i = 0; i < WIDTH; i++) row[i] -= along * other[i];
    }
    const length = Math.sqrt(dot(row, row));
    rows.push(row.map((value) => value / length));
  }
  return { shape: [WIDTH, WIDTH], data: Float64Array.from(rows.flatMap((row) => [...row])) };
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

// Mean absolute gradient at the input of each node, and the share of saturated choices there.
export function gradients(chain, noise, { length, tau, beta, alpha }) {
  const size = new Float64Array(length);
  const saturated = new Float64Array(length);
  for (let example = 0; example < EXAMPLES; example++) {
    const kept = (k) => noise.gates[k][example] >= alpha;
    const choices = [];
    let u = chain.inputs[example];
    for (let k = 0; k < length; k++) {
      const { codebook, rotation: turn } = chain.nodes[k];
      const theta = linear(codebook, u);
      const z = softmax(theta.map((value, i) => (value + beta * noise.gumbel[k][example][i]) / tau));
      const v = transposed(codebook, z);
      if (kept(k)) for (let i = 0; i < WIDTH; i++) v[i] += u[i];
      choices.push(z);
      if (Math.max(...z) > 0.99) saturated[k] += 1 / EXAMPLES;
      u = linear(turn, v);
    }
    let gradient = u.map((value, i) => (2 * (value - chain.targets[example][i])) / WIDTH);
    for (let k = length - 1; k >= 0; k--) {
      const { codebook, rotation: turn } = chain.nodes[k];
      const atV = transposed(turn, gradient);
      const atZ = linear(codebook, atV);
      const z = choices[k];
      const mean = dot(z, atZ);
      const atTheta = atZ.map((value, i) => (z[i] * (value - mean)) / tau);
      gradient = transposed(codebook, atTheta);
      if (kept(k)) for (let i = 0; i < WIDTH; i++) gradient[i] += atV[i];
      for (const value of gradient) size[k] += Math.abs(value) / (WIDTH * EXAMPLES);
    }
  }
  return { size: Array.from(size), saturated: Array.from(saturated) };
}
