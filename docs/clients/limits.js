// The parts that the examples in Node.js share: a limit, on which Redis decides and, while Redis does not answer, this
// process; and the address by which a caller is limited.

const { createHash, randomBytes } = require('crypto');
const { isIPv4, isIPv6 } = require('net');

// The longest time that a call waits for the reply, and a client for a new connection, in ms.
const TIMEOUT = 1000 * (process.env.TIMEOUT ?? 0.1);
const SERVER = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT ?? 6379), connectTimeout: TIMEOUT };
// The most calls that wait for a reply at once.
const PLACES = 1000;
// The rows of a share, and the cells of each.
const [ROWS, CELLS] = [4, 16384];

// A client for the whole process. It has one connection. The libraries make a lost connection again, but keep for many
// minutes one that is silent, as after a firewall has forgotten it, and one to a server that a failover has made a
// replica.
class Connection {
  // `open` returns a client that connects; `send` makes a call on it.
  constructor(open, send) {
    Object.assign(this, { open, send, waiting: 0 });
    this.connect();
  }

  connect() {
    this.client = this.open();
    // Without a listener, an error of the connection would end the process.
    this.client.on('error', log);
    this.heard = performance.now();
  }

  // Resolves to the connection when it is ready, or after five seconds.
  ready() {
    return new Promise((resolve) => {
      this.client.once('ready', () => resolve(this));
      setTimeout(() => resolve(this), 5000).unref();
    });
  }

  // Resolves to the reply. It never makes a call twice.
  async call(words) {
    if (this.waiting >= PLACES) throw new Error(`${PLACES} calls wait for a reply`);
    this.waiting += 1;
    let timer;
    try {
      const reply = await new Promise((resolve, reject) => {
        const late = () => reject(new Error(`no reply in ${TIMEOUT} ms`));
        // node-redis has no time limit of its own. Replies that have arrived are read once more before the call fails,
        // so that a busy process loses none.
        timer = setTimeout(() => setImmediate(late), TIMEOUT);
        this.send(this.client, words).then(resolve, reject);
      });
      this.heard = performance.now();
      return reply;
    } catch (error) {
      // An error of the server, such as NOPERM, is a reply. READONLY is that of a server that has become a replica.
      if (/^(?!READONLY)[A-Z]+ /.test(error.message)) this.heard = performance.now();
      // After a second without any reply, another client takes over.
      if (performance.now() > this.heard + 1000) {
        this.close();
        this.connect();
      }
      throw error;
    } finally {
      clearTimeout(timer);
      this.waiting -= 1;
    }
  }

  close() {
    Promise.resolve(this.client.disconnect()).catch(() => {});
  }
}

// The part of a limit that one of several processes may allow by itself, in a count-min sketch. The earliest of a key's
// cells, one in each row, is the moment at which all its tokens are back, in whole microseconds. Other keys only move a
// cell later, so a collision can refuse a call and never allow one.
class Share {
  constructor(quotas, processes) {
    this.salt = randomBytes(16);
    this.quotas = quotas.map(([maxBurst, count, period]) => {
      const step = Math.ceil((processes * period * 1e6) / count);
      const tokens = maxBurst < 0 ? 0 : Math.max(1, Math.floor((maxBurst + 1) / processes));
      return { step, burst: tokens * step, cells: new Float64Array(ROWS * CELLS) };
    });
    this.most = Math.min(...this.quotas.map(({ step, burst }) => burst / step));
  }

  // Takes the tokens from all quotas, and returns 0; or takes none, and returns the ms to wait.
  take(key, quantity, now = Math.floor(performance.now() * 1000)) {
    const hash = createHash('sha256').update(this.salt).update(key).digest();
    const places = Array.from({ length: ROWS }, (_, row) => row * CELLS + (hash.readUInt32LE(4 * row) % CELLS));
    const moments = this.quotas.map(({ step, cells }) => (
      Math.max(now, Math.min(...places.map((place) => cells[place]))) + quantity * step));
    const wait = Math.max(0, ...this.quotas.map(({ burst }, index) => moments[index] - burst - now));
    if (wait > 0) return wait / 1000;
    this.quotas.forEach(({ cells }, index) => {
      for (const place of places) cells[place] = Math.max(cells[place], moments[index]);
    });
    return 0;
  }
}

// A limit on each caller. A quota is [max_burst, count, period]. A call without an answer is decided by this process's
// share of the limit, or refused if `fail` is 'closed'. With `remember`, the process itself refuses a limited caller
// until a token is back, for that many seconds at most: a reset or a refund counts only after that.
class Limit {
  constructor(connection, name, quotas, { fail = 'share', remember = 0 } = {}) {
    // The processes, on all machines, that divide a limit among them while Redis does not answer.
    const processes = Number(process.env.PROCESSES ?? 1);
    check(quotas, fail, processes);
    Object.assign(this, { connection, name, fail, remember, share: new Share(quotas, processes), refused: new Map() });
    this.most = 1 + Math.min(...quotas.map(([maxBurst]) => maxBurst));
    // Milliseconds, if they count: a wait of 100 ms would be remembered as none.
    [this.command, this.unit] = remember ? ['CL.PTHROTTLE', 1] : ['CL.THROTTLE', 1000];
    this.words = quotas.map(([maxBurst, count, period]) => [maxBurst, count, (period * 1000) / this.unit]);
  }

  // Resolves to the status and the headers to answer a request with, and a word for how the call ended.
  async throttle(caller, quantity = 1) {
    // The quantity may come from outside. A negative one would give tokens back.
    if (!isInteger(quantity, 0)) throw new RangeError(`${quantity} is no quantity`);
    const [key, asked] = [`${this.name}:${caller}`, performance.now()];
    const known = this.refused.get(`${quantity} ${key}`);
    if (known?.until > asked) return [429, { 'Retry-After': seconds(known.allowed - asked) }, 'limited'];
    const [first, ...others] = this.words;
    let reply;
    try {
      reply = await this.connection.call([this.command, key, ...first, quantity, ...others.flat()]);
    } catch (error) {
      log(error);
      return this.decideAlone(key, quantity);
    }
    const [limited, limit, remaining, retryAfter, resetAfter, quota] = reply;
    const headers = {
      'X-RateLimit-Limit': limit,
      'X-RateLimit-Remaining': remaining,
      'X-RateLimit-Reset': seconds(resetAfter * this.unit),
    };
    // A call by several quotas also gets the number of the quota that decides.
    if (quota) headers['X-RateLimit-Quota'] = quota;
    if (!limited) return [200, headers, 'allowed'];
    // A wait of -1 never ends: the call asks for more than the limit, which may be 0.
    if (retryAfter < 0) return [limit ? 413 : 403, headers, 'limited'];
    // Redis has rounded the wait up to a millisecond.
    if (this.remember) this.refuse(`${quantity} ${key}`, asked, retryAfter - 1);
    return [429, { ...headers, 'Retry-After': seconds(retryAfter * this.unit) }, 'limited'];
  }

  decideAlone(key, quantity) {
    if (quantity > this.most && this.fail === 'share') return [this.most ? 413 : 403, {}, 'share'];
    // The share never has so many tokens. Redis may have them when it is back.
    if (quantity > this.share.most || this.fail === 'closed') return [503, { 'Retry-After': 1 }, this.fail];
    const wait = this.share.take(key, quantity);
    return wait ? [429, { 'Retry-After': seconds(wait) }, 'share'] : [200, {}, 'share'];
  }

  refuse(call, asked, wait) {
    this.refused.delete(call);
    this.refused.set(call, { until: asked + Math.min(wait, 1000 * this.remember), allowed: asked + wait });
    // A limit remembers 10,000 refused callers. The first key of a Map is the oldest.
    if (this.refused.size > 10000) this.refused.delete(this.refused.keys().next().value);
  }
}

const seconds = (ms) => Math.ceil(ms / 1000);
const isInteger = (number, least) => Number.isSafeInteger(number) && number >= least;

// Throws if Redis would have an error for each call of the limit: the share would decide on all of them.
function check(quotas, fail, processes) {
  const isQuota = ([maxBurst, count, period, ...rest]) => (
    !rest.length && isInteger(maxBurst, -1) && isInteger(count, 1) && isInteger(period, 1)
    && count <= period * 1e9 && Math.max(maxBurst + 1, count) * period <= count * 2 ** 32);
  if (!quotas.length || quotas.length > 8 || !quotas.every(isQuota)) {
    throw new RangeError(`no quotas of max_burst, count, period: ${JSON.stringify(quotas)}`);
  }
  if (!['share', 'closed'].includes(fail) || !isInteger(processes, 1)) throw new RangeError(`${fail}, ${processes}`);
}

let logged = -Infinity;

// Logs at most one failure a second: there may be thousands.
function log(error) {
  if (performance.now() < logged + 1000) return;
  logged = performance.now();
  console.error(`Redis does not decide: ${error.message}`);
}

// Returns the IPv4 address in a text, or the 2^64 addresses around its IPv6 address: a customer has all of them. Some
// proxies add a port, or a text without an address: `otherwise` then counts.
function address(text, otherwise = 'unix') {
  // A part of Express, or: npm install ipaddr.js
  const { IPv4, IPv6 } = require('ipaddr.js');
  const [, word] = /^\[([^\]%]*)/.exec(text) ?? /^([^:]*):\d+$/.exec(text) ?? /^([^%]*)/.exec(text ?? '');
  if (isIPv4(word)) return word;
  if (!isIPv6(word)) return otherwise;
  // A URL has the address in its canonical form: ipaddr.js does not know all others.
  const ip = IPv6.parse(new URL(`http://[${word}]`).hostname.slice(1, -1));
  // A NAT64 gateway puts a caller's IPv4 address into the last 32 bits of an address in 64:ff9b::/96.
  if (['ipv4Mapped', 'rfc6052'].includes(ip.range())) return new IPv4(ip.toByteArray().slice(12)).toString();
  return `${new IPv6([...ip.parts.slice(0, 4), 0, 0, 0, 0]).toRFC5952String()}/64`;
}

// The limiter allows three at once and one a minute; the last call asks for four tokens.
async function demonstrate(connection) {
  const limit = new Limit(connection, 'example', [[2, 1, 60]], { fail: process.env.FAIL ?? 'share' });
  for (const quantity of [1, 1, 1, 1, 4]) {
    const [status, headers] = await limit.throttle('user123', quantity);
    console.log(status, Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join(', '));
  }
  connection.close();
}

module.exports = { Connection, Limit, SERVER, Share, TIMEOUT, address, demonstrate };
