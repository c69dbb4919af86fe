// Random numbers from a seed, so that a picture moves with its sliders and not with the noise.

// Uniform in (0, 1), Gumbel(0, 1) and N(0, 1), by the generator mulberry32.
export function randomFrom(seed) {
  let state = seed >>> 0;
  function uniform() {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return (((x ^ (x >>> 14)) >>> 0) + 0.5) / 4294967296;
  }
  function gumbel() {
    return -Math.log(-Math.log(uniform()));
  }
  function normal() {
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    return radius * Math.cos(2 * Math.PI * uniform());
  }
  return { uniform, gumbel, normal };
}

// A generator's numbers as an array.
export function draws(count, draw) {
  return Float64Array.from({ length: count }, draw);
}
