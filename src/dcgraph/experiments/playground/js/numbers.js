// Arithmetic that all models share. Vectors are arrays of numbers, plain or typed; a matrix is
// { shape: [rows, columns], data } in row order. Sums are in double precision.

export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

export function logSumExp(values) {
  const largest = Math.max(...values);
  if (!Number.isFinite(largest)) return largest;
  let sum = 0;
  for (const value of values) sum += Math.exp(value - largest);
  return largest + Math.log(sum);
}

export function softmax(values) {
  const total = logSumExp(values);
  return Array.from(values, (value) => Math.exp(value - total));
}

// log(1 / (1 + exp(-x))), also far from 0.
export function logSigmoid(x) {
  return Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));
}

// log(1 + exp(x))
export function softplus(x) {
  return -logSigmoid(-x);
}

export function relu(values) {
  return values.map((value) => (value > 0 ? value : 0));
}

export function add(a, b) {
  return a.map((value, i) => value + b[i]);
}

// W x + c; without c, W x.
export function linear(matrix, x, bias) {
  const [rows, columns] = matrix.shape;
  const out = new Float64Array(rows);
  for (let i = 0; i < rows; i++) {
    let sum = bias ? bias.data[i] : 0;
    const start = i * columns;
    for (let j = 0; j < columns; j++) sum += matrix.data[start + j] * x[j];
    out[i] = sum;
  }
  return out;
}

// x W, the product with the transpose.
export function transposed(matrix, x) {
  const [rows, columns] = matrix.shape;
  const out = new Float64Array(columns);
  for (let i = 0; i < rows; i++) {
    const start = i * columns;
    for (let j = 0; j < columns; j++) out[j] += matrix.data[start + j] * x[i];
  }
  return out;
}

export function rowOf(matrix, i) {
  const columns = matrix.shape[1];
  return Float64Array.from(matrix.data.subarray(i * columns, (i + 1) * columns));
}
