// The shipped model of MNIST addition: an image becomes a symbol, two symbols become their sum.

import { argmax, linear, relu, rowOf } from "./numbers.js";

export const SIDE = 28;

// The model of these weights. `use` says how many training images of each digit got each symbol:
// symbols are learned without digits, so this is how they are named.
export function adderOf(weights, use) {
  const codebook = weights["symbol.codebook"];
  const meaning = use.map((counts) => (counts.some((n) => n > 0) ? argmax(counts) : -1));
  const digits = use[0].map((_, digit) => argmax(use.map((counts) => counts[digit])));

  function dense(name, x) {
    return linear(weights[`${name}.weight`], x, weights[`${name}.bias`]);
  }

  // Logits of the symbols of an image with pixels from -1, the background, to 1.
  function symbolLogits(pixels) {
    let x = { data: pixels, shape: [1, SIDE, SIDE] };
    for (const layer of [0, 1]) x = convolved(weights, `encode.convolutions.${layer}`, x);
    const hidden = relu(dense("encode.mlp.2", relu(dense("encode.mlp.0", x.data))));
    return linear(codebook, dense("encode.mlp.4", hidden));
  }

  // Logits of the sum of two symbols; a category is a number right away.
  function sumLogits(left, right) {
    const both = Float64Array.of(...rowOf(codebook, left), ...rowOf(codebook, right));
    return linear(codebook, relu(dense("add.0.2", relu(dense("add.0.0", both)))));
  }

  return {
    symbols: codebook.shape[0],
    use,
    meaning, // the digit that each symbol commonly stands for, -1 if no image got it
    digits, // the symbol that most images of each digit got
    symbolLogits,
    sumLogits,
    read: (pixels) => argmax(symbolLogits(pixels)),
    sum: (left, right) => argmax(sumLogits(left, right)),
  };
}

// relu(maxpool(convolution)) with windows of 2 x 2 pixels.
function convolved(weights, name, x) {
  const weight = weights[`${name}.weight`];
  const bias = weights[`${name}.bias`].data;
  const [filters, channels, size] = weight.shape;
  const [, , width] = x.shape;
  const pooled = (width - size + 1) / 2;
  const out = new Float64Array(filters * pooled * pooled);
  for (let f = 0; f < filters; f++) {
    for (let row = 0; row < 2 * pooled; row++) {
      for (let column = 0; column < 2 * pooled; column++) {
        let sum = bias[f];
        for (let c = 0; c < channels; c++) {
          for (let i = 0; i < size; i++) {
            const filter = ((f * channels + c) * size + i) * size;
            const pixel = (c * width + row + i) * width + column;
            for (let j = 0; j < size; j++) sum += weight.data[filter + j] * x.data[pixel + j];
          }
        }
        const place = (f * pooled + (row >> 1)) * pooled + (column >> 1);
        if (sum > out[place]) out[place] = sum; // from 0 on: the ReLU
      }
    }
  }
  return { data: out, shape: [filters, pooled, pooled] };
}
