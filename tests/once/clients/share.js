// Holds the share of limits.js against a limiter for each key, in exact integers: 1.2 million decisions at random, of
// more keys than a row has cells. A token takes some microseconds, so that one microsecond too few would show.

const { Share } = require(`${process.cwd()}/limits.js`);

let seed = 2026;
// Park and Miller's generator.
const below = (end) => {
  seed = (seed * 48271) % 2147483647;
  return seed % end;
};

let [decisions, taken, beyond, bytes] = [0, 0, 0, 0];
const CASES = [[1, [[2, 300007, 1]]], [2, [[9, 150001, 1]]], [3, [[9, 300007, 1], [99, 700001, 3]]]];
for (const [processes, quotas] of CASES) {
  const share = new Share(quotas, processes);
  const exact = new Map();
  // Times are in units of which a token takes a whole number: microseconds, each divided by the count.
  const rules = quotas.map(([maxBurst, count, period]) => ({
    unit: BigInt(count),
    step: BigInt(processes * period) * 1000000n,
    tokens: BigInt(Math.max(1, Math.floor((maxBurst + 1) / processes))),
  }));
  let now = 1;
  for (let call = 0; call < 400000; call += 1) {
    now += below(6);
    const key = `key${below(call % 4 ? 5 : 30000)}`;
    const quantity = 1 + below(2);
    decisions += 1;
    if (share.take(key, quantity, now)) continue;
    taken += 1;
    const moments = exact.get(key) ?? rules.map(() => 0n);
    exact.set(key, rules.map(({ unit, step, tokens }, index) => {
      const at = BigInt(now) * unit;
      const moment = (moments[index] > at ? moments[index] : at) + BigInt(quantity) * step;
      if (moment - tokens * step > at) beyond += 1;
      return moment;
    }));
  }
  bytes += share.quotas.reduce((sum, { cells }) => sum + cells.byteLength, 0);
}
const many = taken > 300000 ? 'many' : taken;
console.log(`${decisions} decisions, ${many} taken, ${beyond} beyond, ${bytes / 2 ** 20} MB`);
