// One discrete step: z = softmax((theta + beta G) / tau) with Gumbel noise G.

import { argmax, logSumExp, softmax } from "./numbers.js";

export function relaxed(theta, tau, beta, noise) {
  return softmax(theta.map((value, i) => (value + beta * noise[i]) / tau));
}

// The chance of each category to be the largest entry of z: softmax(theta / beta), whatever tau is.
export function shares(theta, beta) {
  if (beta > 0) return softmax(theta.map((value) => value / beta));
  const best = argmax(theta);
  return theta.map((_, i) => (i === best ? 1 : 0));
}

// Log-density of z with respect to dz_1 ... dz_(k-1): the Concrete distribution of temperature
// tau / beta and locations exp(theta / beta).
export function logDensity(z, theta, tau, beta) {
  const ratio = tau / beta;
  const logs = z.map(Math.log);
  const terms = theta.map((value, i) => value / beta - ratio * logs[i]);
  let sum = -z.length * logSumExp(terms);
  for (let i = 0; i < z.length; i++) sum += terms[i] - logs[i];
  for (let i = 2; i < z.length; i++) sum += Math.log(i);
  return sum + (z.length - 1) * Math.log(ratio);
}
