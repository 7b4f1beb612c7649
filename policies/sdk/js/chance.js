// @ts-check
// Chance: a small generator grown from `view.seed`, a policy's only source of it.

const TWO_32 = 2 ** 32;

/**
 * SplitMix64 (Steele, Lea, Flood 2014). The same seed gives the same draws on every machine, and in
 * every language that has an SDK.
 *
 * 64 bits are kept as two halves of 32: a BigInt for each step takes ten times as long.
 */
export class Chance {
  #high = 0;
  #low;

  /** @param {number} seed The seed of a view. */
  constructor(seed) {
    this.#low = seed >>> 0;
  }

  /** 64 random bits. */
  bits() {
    const [high, low] = this.#next();
    return (BigInt(high) << 32n) | BigInt(low);
  }

  /** Uniform in [0, 1), with 53 bits. */
  unit() {
    const [high, low] = this.#next();
    return (high * 2 ** 21 + (low >>> 11)) / 2 ** 53;
  }

  /**
   * Uniform in 0..n. `n` must not be 0.
   * @param {number} n
   */
  below(n) {
    // The high half of the product of 64 bits and n. Exact in doubles while each part stays below 2^53.
    if (n > 2 ** 20) return Number((this.bits() * BigInt(n)) >> 64n);
    const [high, low] = this.#next();
    return Math.floor((high * n + Math.floor((low * n) / TWO_32)) / TWO_32);
  }

  /**
   * `k` of `0..n` without replacement, in the order drawn; all of them, shuffled, if `k >= n`.
   * @param {number} n
   * @param {number} k
   * @returns {number[]}
   */
  draw(n, k) {
    const all = /** @type {number[]} */ ([]);
    for (let i = 0; i < n; i++) all.push(i);
    const drawn = Math.min(k, n);
    for (let i = 0; i < drawn; i++) {
      const j = i + this.below(n - i);
      const kept = all[i];
      all[i] = all[j];
      all[j] = kept;
    }
    all.length = drawn;
    return all;
  }

  /** @returns {[number, number]} The next 64 bits, in halves. */
  #next() {
    const sum = this.#low + 0x7f4a7c15;
    this.#low = sum >>> 0;
    this.#high = (this.#high + 0x9e3779b9 + (sum >= TWO_32 ? 1 : 0)) >>> 0;
    let high = this.#high;
    let low = this.#low;
    // z ^= z >> 30; z *= 0xBF58476D1CE4E5B9
    low ^= (low >>> 30) | (high << 2);
    high ^= high >>> 30;
    [high, low] = product(high, low >>> 0, 0xbf58476d, 0x1ce4e5b9);
    // z ^= z >> 27; z *= 0x94D049BB133111EB
    low ^= (low >>> 27) | (high << 5);
    high ^= high >>> 27;
    [high, low] = product(high, low >>> 0, 0x94d049bb, 0x133111eb);
    // z ^ (z >> 31)
    low ^= (low >>> 31) | (high << 1);
    high ^= high >>> 31;
    return [high >>> 0, low >>> 0];
  }
}

/**
 * The low 64 bits of a product of two numbers in halves.
 * @param {number} aHigh
 * @param {number} aLow
 * @param {number} bHigh
 * @param {number} bLow
 * @returns {[number, number]}
 */
function product(aHigh, aLow, bHigh, bLow) {
  // Products of 32 by 16 bits are exact in doubles.
  const bottom = aLow * (bLow & 0xffff);
  const top = aLow * (bLow >>> 16);
  const carry = (top + Math.floor(bottom / 0x10000)) / 0x10000;
  const high = Math.floor(carry) + Math.imul(aLow, bHigh) + Math.imul(aHigh, bLow);
  return [high | 0, Math.imul(aLow, bLow) >>> 0];
}
