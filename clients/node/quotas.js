/** A burst of `burst` requests (`limit` by default), and `limit` more every `windowMs`.
 * @typedef {{ limit: number, windowMs: number, burst?: number }} Quota */

// In ms. The server can store times only until the year 2262.
const CENTURY = 100 * 365 * 24 * 60 * 60 * 1000;

/** Returns each quota's max_burst, count, and period in ms. @param {Quota[] | undefined} quotas */
function integers(quotas) {
  if (!Array.isArray(quotas) || !quotas.length || quotas.length > 8) throw new TypeError('there must be 1 to 8 quotas');
  return quotas.map(({ limit, windowMs, burst = limit }) => {
    const period = Math.min(Math.max(Math.ceil(windowMs), 1), CENTURY);
    // Like the limiter libraries, count a limit of 2.5 as 2, and a negative limit as 0. Count infinity as the most
    // that the server allows: a token per nanosecond.
    const most = Math.min(1e6 * period, Number.MAX_SAFE_INTEGER);
    const [count, tokens] = [limit, burst].map((number) => Math.min(Math.max(Math.floor(number), 0), most));
    const numbers = [(count && tokens) - 1, Math.max(count, 1), period];
    if (numbers.every(Number.isSafeInteger)) return numbers;
    throw new TypeError(`not a quota: limit ${limit}, windowMs ${windowMs}, burst ${burst}`);
  });
}

module.exports = { integers };
