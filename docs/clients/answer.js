// The HTTP answer to a call of node_redis.js or ioredis.js. It bounds the calls that wait for a reply, and the time of
// each, because the libraries bound neither reliably. It also replaces a silent connection: one that a firewall has
// forgotten would stay silent for many minutes, and all calls would fail although the server is there.

// The longest time that a call waits for the reply, and the client for a new connection, in ms.
const TIMEOUT = 1000 * (process.env.TIMEOUT ?? 0.1);
// The most calls that wait for a reply at once, and the time that a further call waits for a place, in ms.
const PLACES = 100;
const WAIT = 1000;
// The time without any reply after which the client is replaced, in ms.
const SILENCE = 1000;

// How many calls in a row got no reply, and when the last call was made.
let unanswered = 0;
let asked = 0;
let taken = 0;
const queue = [];

// Resolves to true once the call has a place, or to false if no place becomes free in time.
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

// Resolves to the reply, or fails if the reply takes too long: node-redis has no time limit of its own. The time is
// counted in two halves, and replies that have arrived are read once more before the call fails. So a process that is
// busy for a while loses no reply.
function inTime(reply) {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`no reply in ${TIMEOUT} ms`));
    const secondHalf = () => { timer = setTimeout(() => setImmediate(late), TIMEOUT / 2); };
    let timer = setTimeout(secondHalf, TIMEOUT / 2);
    reply.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

// A client for the whole process. It has one connection. The libraries make a lost connection again, but keep one that
// is silent, for many minutes, and one to a server that a failover has made a replica.
class Connection {
  // `open` returns a client that connects.
  constructor(open) {
    this.open = open;
    this.client = open();
    this.heard = Date.now();
  }

  // Resolves to the connection when it is ready, or after five seconds.
  ready() {
    return new Promise((resolve) => {
      this.client.once('ready', () => resolve(this));
      setTimeout(() => resolve(this), 5000).unref();
    });
  }

  // Replaces the client if no call has got a reply for a second.
  replace() {
    if (Date.now() - this.heard < SILENCE) return;
    this.heard = Date.now();
    this.close();
    this.client = this.open();
  }

  close() {
    Promise.resolve(this.client.disconnect()).catch(() => {});
  }
}

// Makes a call, `send(client)`. Resolves to the status and the headers to answer an HTTP request with, and a word for
// how the call ended. `fail` decides on a call without a reply: 'open' allows it, 'closed' refuses it. A call that
// finds no place is refused.
async function answer(connection, send, fail) {
  const refused = [503, { 'Retry-After': 1 }];
  if (!await place()) return [...refused, 'busy'];
  let reply;
  try {
    // A server that has answered none of these calls is silent: only one call per TIMEOUT still asks it.
    if (unanswered >= PLACES && Date.now() < asked + TIMEOUT) throw new Error('the server is silent');
    asked = Date.now();
    reply = await inTime(send(connection.client));
    connection.heard = Date.now();
    unanswered = 0;
  } catch (error) {
    console.error(`no limits, failing ${fail}: ${error.message}`);
    // An error of the server, such as NOPERM, is a reply. READONLY is that of a server that has become a replica.
    const [code] = /^[A-Z]+(?= )/.exec(error.message) ?? [];
    unanswered = code ? 0 : unanswered + 1;
    if (code && code !== 'READONLY') connection.heard = Date.now();
    connection.replace();
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
  // The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
  if (retryAfter >= 0) headers['Retry-After'] = retryAfter;
  // A call by several quotas also gets the number of the quota that decides.
  if (quota) headers['X-RateLimit-Quota'] = quota;
  if (limited) return [retryAfter < 0 ? 413 : 429, headers, 'limited'];
  return [200, headers, 'allowed'];
}

// Throws if the quantity is no number of tokens: a negative one would give tokens back, and the server's error for any
// other would let the call through if it fails open.
function check(quantity) {
  if (!Number.isSafeInteger(quantity) || quantity < 0) throw new RangeError(`${quantity} is no quantity`);
}

// The limiter allows three at once and one a minute; the last call asks for four tokens.
async function demonstrate(throttle, connection) {
  for (const quantity of [1, 1, 1, 1, 4]) {
    const [status, headers] = await throttle(connection, 'user123', [2, 1, 60], process.env.FAIL ?? 'open', quantity);
    console.log(status, Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join(', '));
  }
}

module.exports = { Connection, TIMEOUT, answer, check, demonstrate };
