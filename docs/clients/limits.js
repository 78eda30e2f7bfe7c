// The parts that the examples in Node.js share: a connection, a limit, its share, refused callers and addresses.

const { createHash, randomBytes } = require('crypto');
const { BlockList, isIPv4, isIPv6 } = require('net');

const isInteger = (number, least, most = 2 ** 53 - 1) => Number.isInteger(number) && number >= least && number <= most;

function check(isRight, name, value) {
  if (!isRight) throw new RangeError(`${name} cannot be ${String(value)}`);
}

// The longest time that a call waits for the reply, and a client for a new connection, in ms.
const TIMEOUT = 1000 * (process.env.TIMEOUT ?? 0.1);
check(TIMEOUT >= 1 && TIMEOUT <= 1000 * 86400, 'TIMEOUT', process.env.TIMEOUT);
const SERVER = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT ?? 6379), connectTimeout: TIMEOUT };
check(isInteger(SERVER.port, 1, 65535), 'REDIS_PORT', process.env.REDIS_PORT);
const HEADERS = ['Limit', 'Remaining', 'Reset', 'Quota'].map((name) => `X-RateLimit-${name}`);
// The groups of a share, and the keys in each.
const [GROUPS, KEYS] = [2048, 64];
// A secret, without which no caller can choose a group, nor a key whose bytes are another's.
const SALT = randomBytes(16);

// node-redis keeps the connection of a client that is ended before it is there.
const end = (client) => (async () => client.disconnect())().catch(() => {});

// A client for the whole process, with one connection. Another client takes over where that is lost (node-redis 4 would
// connect thousands of times a second to a proxy that accepts and closes), where it is silent, as after a firewall has
// forgotten it, and where it leads to a replica, as after a failover.
class Connection {
  // `open` returns a client that connects; `send` makes a call on it.
  constructor(open, send) {
    Object.assign(this, { open, send });
    this.connect();
  }

  connect() {
    const client = this.open();
    // A client that connects is not silent: it gives up by itself.
    Object.assign(this, { client, heard: Infinity });
    const lost = () => {
      end(client);
      if (client === this.client) Object.assign(this, { client: null, timer: setTimeout(() => this.connect(), 50) });
    };
    client.on('error', log).on('error', lost).on('close', lost).on('ready', () => this.isReady?.(this));
    client.on('connect', () => {
      if (client === this.client) this.heard = performance.now();
      else end(client);
    });
  }

  // Resolves to the connection when it is ready, or after five seconds.
  ready() {
    return new Promise((resolve) => {
      this.isReady = resolve;
      setTimeout(resolve, 5000, this).unref();
    });
  }

  // Resolves to the reply. It never makes a call twice.
  async call(words) {
    let timer;
    try {
      if (!this.client) throw new Error('no connection');
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
    }
  }

  close() {
    clearTimeout(this.timer);
    if (this.heard < Infinity && this.client) end(this.client);
    this.client = null;
  }
}

// Returns 32 bytes for a key of any length.
const digest = (key) => createHash('sha256').update(SALT).update(key).digest();

// The part of a limit that one of several processes may allow by itself. A key is in one of 2,048 groups, which has 64
// places for keys and for the moments, in microseconds, at which all tokens of each are back. A key without a place
// takes that with the earliest moment, and begins there: in a full group, a key may be refused for another's calls, but
// none gets more than its share.
class Share {
  constructor(quotas, processes) {
    this.quotas = quotas.map(([maxBurst, count, period]) => {
      const step = Math.ceil((processes * period * 1e6) / count);
      const tokens = maxBurst < 0 ? 0 : Math.max(1, Math.floor((maxBurst + 1) / processes));
      return { step, burst: tokens * step, cells: [0, 0].map(() => new Float64Array(GROUPS * KEYS)) };
    });
    this.most = Math.min(...this.quotas.map(({ step, burst }) => burst / step));
  }

  // Takes the tokens from all quotas, and returns 0; or takes none, and returns the ms to wait.
  take(key, quantity, now = Math.floor(performance.now() * 1000)) {
    const number = digest(key).readUIntLE(0, 6);
    const first = (number % GROUPS) * KEYS;
    const found = this.quotas.map(({ step, burst, cells }) => {
      const [keys, moments] = cells.map((all) => all.subarray(first, first + KEYS));
      const place = keys.includes(number) ? keys.indexOf(number) : moments.indexOf(Math.min(...moments));
      const moment = Math.max(now, moments[place]) + quantity * step;
      return { keys, moments, place, moment, wait: moment - burst - now };
    });
    const wait = Math.max(0, ...found.map((quota) => quota.wait));
    for (const { keys, moments, place, moment } of wait ? [] : found) {
      [keys[place], moments[place]] = [number, moment];
    }
    return wait / 1000;
  }
}

// A limit on each caller. A quota is [max_burst, count, period]. A call without an answer is decided by this process's
// share of the limit, or refused if `fail` is 'closed'. With `remember`, the process itself refuses a limited caller
// until a token is back, for that many seconds at most: a reset or a refund counts only after that.
class Limit {
  constructor(connection, name, quotas, { fail = 'share', remember = 0 } = {}) {
    // The processes, on all machines, that divide a limit among them while Redis does not answer.
    const processes = Number(process.env.PROCESSES ?? 1);
    check(isInteger(processes, 1, 2 ** 32), 'PROCESSES', process.env.PROCESSES);
    const own = Array.from(quotas ?? [], (quota) => Array.from(quota ?? []));
    // A key is "name:caller". With a colon in names, a caller could choose the key of another limit's caller.
    check(typeof name === 'string' && /^[^:]+$/.test(name), "a limit's name", name);
    check(isInteger(own.length, 1, 8) && own.every(isQuota), `${name}: max_burst, count, period`, quotas);
    check(['share', 'closed'].includes(fail), `${name}: fail`, fail);
    check(isInteger(remember, 0, 2 ** 32), `${name}: remember`, remember);
    Object.assign(this, { connection, name, fail, remember, share: new Share(own, processes), refused: new Map() });
    this.most = 1 + Math.min(...own.map(([maxBurst]) => maxBurst));
    // Milliseconds, if they count: a wait of 100 ms would be remembered as none.
    [this.command, this.unit] = remember ? ['CL.PTHROTTLE', 1] : ['CL.THROTTLE', 1000];
    this.words = own.map(([maxBurst, count, period]) => [maxBurst, count, (period * 1000) / this.unit]);
  }

  // Resolves to the status and the headers to answer a request with, and a word for how the call ended.
  async throttle(caller, quantity = 1) {
    // Objects, and halves of surrogate pairs, may have the bytes of others. A negative quantity would give tokens back.
    const isText = ['string', 'number', 'bigint'].includes(typeof caller) && !/\p{Surrogate}/u.test(caller);
    check(isText, `${this.name}: a caller`, caller);
    check(isInteger(quantity, 0), `${this.name}: a quantity`, quantity);
    const [key, asked] = [`${this.name}:${caller}`, performance.now()];
    // A digest has few bytes, whatever the caller's name.
    const call = this.remember && `${quantity} ${digest(key).toString('base64')}`;
    const known = this.refused.get(call);
    if (known?.until > asked) return [429, { 'Retry-After': seconds(known.allowed - asked) }, 'limited'];
    const [first, ...others] = this.words;
    let reply;
    try {
      reply = await this.connection.call([this.command, key, ...first, quantity, ...others.flat()]);
      if (!isIntegers(reply, others.length ? 6 : 5)) throw new Error(`no reply of ${this.command}`);
    } catch (error) {
      log(error);
      return this.decideAlone(key, quantity);
    }
    // A call by several quotas also gets the number of the quota that decides.
    const [limited, limit, remaining, retryAfter, resetAfter, ...deciding] = reply;
    const values = [limit, remaining, seconds(resetAfter * this.unit), ...deciding];
    const headers = Object.fromEntries(values.map((value, index) => [HEADERS[index], value]));
    if (!limited) return [200, headers, 'allowed'];
    // A wait of -1 never ends: the call asks for more than the limit, which may be 0.
    if (retryAfter < 0) return [limit ? 413 : 403, headers, 'limited'];
    if (this.remember) {
      // Redis has rounded the wait up to a millisecond.
      const wait = retryAfter - 1;
      this.refused.delete(call);
      this.refused.set(call, { until: asked + Math.min(wait, 1000 * this.remember), allowed: asked + wait });
      // The first key of a Map is the oldest.
      if (this.refused.size > 10000) this.refused.delete(this.refused.keys().next().value);
    }
    return [429, { ...headers, 'Retry-After': seconds(retryAfter * this.unit) }, 'limited'];
  }

  decideAlone(key, quantity) {
    if (quantity > this.most && this.fail === 'share') return [this.most ? 413 : 403, {}, 'share'];
    // The share never has so many tokens. Redis may have them when it is back.
    if (quantity > this.share.most || this.fail === 'closed') return [503, { 'Retry-After': 1 }, this.fail];
    const wait = this.share.take(key, quantity);
    return wait ? [429, { 'Retry-After': seconds(wait) }, 'share'] : [200, {}, 'share'];
  }
}

const seconds = (ms) => Math.ceil(ms / 1000);

// Tells whether Redis takes a quota. With another, each call would be an error, on which the share decides.
const isQuota = ([maxBurst, count, period, ...rest]) => (
  !rest.length && isInteger(maxBurst, -1) && isInteger(count, 1) && isInteger(period, 1)
  && count <= period * 1e9 && Math.max(maxBurst + 1, count) * period <= count * 2 ** 32);

// Tells whether a reply is that many integers. Whatever else a server or a proxy says is no answer.
const isIntegers = (reply, many) => Array.isArray(reply) && reply.length === many && reply.every(Number.isSafeInteger);

let logged = -Infinity;

// Logs at most one failure a second: there may be thousands.
function log(error) {
  if (performance.now() < logged + 1000) return;
  logged = performance.now();
  console.error(`Redis does not decide: ${error.message}`);
}

// Returns the eight groups of the address in a text, which may have a port, or undefined. IPv4 is in ::ffff:0:0/96.
function parse(text) {
  const [, word] = /^\[([^\]]*)/.exec(text) ?? /^([^:]*):[^:]*$/.exec(text) ?? [text, text];
  const address = isIPv4(word) ? `::ffff:${word}` : word;
  if (!isIPv6(address)) return undefined;
  // A URL has each address in one form, such as 2001:db8::7.
  const { hostname } = new URL(`http://[${address.replace(/%.*/, '')}]`);
  const [head, tail] = hostname.slice(1, -1).split('::').map((part) => part.split(':').filter(Boolean));
  return (tail ? [...head, ...Array(8 - head.length - tail.length).fill('0'), ...tail] : head).join(':');
}

const split = (text) => text.split(',').map((word) => word.trim()).filter(Boolean);

// Your own proxies, as "192.0.2.1,2001:db8::/48". One that connects by a Unix socket is "unix".
const PROXIES = split(process.env.PROXY ?? '');
const NETWORKS = new BlockList();
for (const word of PROXIES.filter((proxy) => proxy !== 'unix')) {
  const [, text, bits] = /^([^/]*)(?:\/(\d+))?$/.exec(word) ?? [];
  const prefix = Number(bits ?? 128) + (bits && isIPv4(text) ? 96 : 0);
  check(parse(text) && prefix <= 128, 'PROXY', word);
  NETWORKS.addSubnet(parse(text), prefix, 'ipv6');
}

// Returns the address by which to limit a request from `peer` with this X-Forwarded-For header.
function limitedAddress(peer, forwarded = '') {
  const words = split(forwarded);
  let address = parse(peer);
  // Each proxy adds the address that it sees. The caller may have invented the words before that.
  while (address ? NETWORKS.check(address, 'ipv6') : PROXIES.includes('unix')) {
    const before = parse(words.pop());
    if (!before) break;
    address = before;
  }
  if (!address) return 'unix';
  // A NAT64 gateway puts a caller's IPv4 address into the last 32 bits of an address in 64:ff9b::/96.
  const [, ipv4] = /^(?:0:0:0:0:0:ffff|64:ff9b:0:0:0:0):(.*)/.exec(address) ?? [];
  if (ipv4) return ipv4.split(':').flatMap((group) => [parseInt(group, 16) >> 8, parseInt(group, 16) & 255]).join('.');
  // A customer has 2^64 addresses of IPv6, or more.
  return `${address.split(':', 4).join(':').replace(/(^0|:0)+$/, '')}::/64`;
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

module.exports = { Connection, HEADERS, Limit, SERVER, Share, TIMEOUT, demonstrate, limitedAddress };
