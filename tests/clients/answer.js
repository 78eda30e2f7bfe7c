// The HTTP answer to a call of node_redis.js or ioredis.js, in a time that is bounded.

// How long a call waits for the server's reply, in ms.
const TIMEOUT = 1000 * (process.env.TIMEOUT ?? 0.1);
// Calls that wait for a reply at once, and how long another waits for a place among them, in ms.
const PLACES = 100;
const WAIT = 1000;

let taken = 0;
const queue = [];

// Resolves to true when the call has a place, to false if none comes free in time.
function place() {
  if (taken < PLACES) {
    taken += 1;
    return true;
  }
  return new Promise((resolve) => {
    const given = () => {
      clearTimeout(timer);
      resolve(true);
    };
    const timer = setTimeout(() => {
      queue.splice(queue.indexOf(given), 1);
      resolve(false);
    }, WAIT);
    queue.push(given);
  });
}

// Gives the place to the call that has waited longest.
function leave() {
  if (queue.length) queue.shift()();
  else taken -= 1;
}

// The reply, or an error where it takes too long: node-redis has no time limit of its own. A busy process counts the
// time in halves, and reads what has come before it gives up: a reply is not late because the process is.
function inTime(reply) {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`no reply in ${TIMEOUT} ms`));
    const secondHalf = () => { timer = setTimeout(() => setImmediate(late), TIMEOUT / 2); };
    let timer = setTimeout(secondHalf, TIMEOUT / 2);
    reply.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

// Makes the call, and resolves to the status and the headers to answer an HTTP request with, and to a word for how the
// call ended. `fail` is what a call without a reply decides: 'open' allows it, 'closed' refuses it. A call that finds no
// place is refused.
async function answer(call, fail) {
  const refused = [503, { 'Retry-After': 1 }];
  if (!await place()) return [...refused, 'busy'];
  let reply;
  try {
    reply = await inTime(call());
  } catch (error) {
    console.error(`no limits, failing ${fail}: ${error.message}`);
    return [...(fail === 'open' ? [200, {}] : refused), `failed ${fail}`];
  } finally {
    leave();
  }
  const [limited, limit, remaining, retryAfter, resetAfter, quota] = reply;
  const headers = {
    'X-RateLimit-Limit': limit,
    'X-RateLimit-Remaining': remaining,
    'X-RateLimit-Reset': resetAfter,
  };
  // -1 where the call was allowed, and where it asks for more than the limit and never will be.
  if (retryAfter >= 0) headers['Retry-After'] = retryAfter;
  // The number of the quota that decides, where there are several.
  if (quota) headers['X-RateLimit-Quota'] = quota;
  return limited ? [429, headers, 'limited'] : [200, headers, 'allowed'];
}

// Three at once and one a minute; the last call asks for four.
async function demonstrate(throttle, client) {
  for (const quantity of [1, 1, 1, 1, 4]) {
    const [status, headers] = await throttle(client, 'user123', [2, 1, 60], process.env.FAIL ?? 'open', quantity);
    console.log(status, Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join(', '));
  }
}

module.exports = { answer, demonstrate };
