// Prints the outcomes of the cases on the input by limits.js. test_limits.py has the cases, and does so by limits.py.

const file = require.resolve(`${process.cwd()}/limits.js`);
const own = process.env;

async function outcomeOf({ environment, quotas = [[2, 1, 60]], name = 'wrong', calls = [], ...settings }) {
  let [now, reply] = [0, null];
  const [decisions, commands] = [[], []];
  const call = async (words) => {
    commands.push(words);
    now += 1000;
    return reply;
  };
  // Node.js 18 lets nobody assign it.
  Object.defineProperty(performance, 'now', { value: () => now, configurable: true });
  process.env = { ...own, ...environment };
  delete require.cache[file];
  try {
    const limit = new (require(file).Limit)({ call }, name, quotas, settings);
    for (const quota of quotas) quota.fill(-5);
    for (const [moment, caller, quantity, answer] of calls) {
      [now, reply] = [moment, answer];
      decisions.push(await limit.throttle(caller, quantity));
    }
    return [decisions, commands, [...limit.refused.keys()]];
  } catch (error) {
    return String(error);
  }
}

// JavaScript has NaN and Infinity, and so has Python's JSON.
const cases = eval(require('fs').readFileSync(0, 'utf8'));
cases.reduce(async (outcomes, each) => [...await outcomes, await outcomeOf(each)], [])
  .then((outcomes) => console.log(JSON.stringify(outcomes)));
