// The weights of the shipped models, as the build put them into the page.

// From { name: { shape, data } } with data as base64 of little-endian float32.
export function unpacked(packed) {
  const weights = {};
  for (const [name, { shape, data }] of Object.entries(packed)) {
    const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
    weights[name] = { shape, data: new Float32Array(bytes.buffer) };
  }
  return weights;
}
