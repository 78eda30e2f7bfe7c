// A store for express-rate-limit and hono-rate-limiter. Needs node_redis.js.

const { AsyncLocalStorage } = require('node:async_hooks');
const { throttle } = require('./node_redis.js'); // or './ioredis.js'

/** @typedef {[maxBurst: number, count: number, period: number, quantity?: number, ...further: number[]]} Quotas */

/** Returns the quota of a limit in a window. @param {number} limit @param {number} ms @returns {Quotas} */
function quota(limit, ms) {
  // CL.THROTTLE takes seconds. A limit of 0 refuses every request, but the count must be positive.
  return [limit - 1, 1000 * Math.max(limit, 1), ms];
}

/** Returns the milliseconds to wait before a retry, or until the limiter is full. @param {number[]} reply */
function wait([limited, , , retryAfter, resetAfter]) {
  return 1000 * Math.max(limited ? retryAfter : resetAfter, 1);
}

function unanswered() {
  const [message, headers] = ['Try again later', { 'Retry-After': '1' }];
  const getResponse = () => new Response(message, { status: 503, headers }); // for Hono
  return Object.assign(new Error(message), { status: 503, statusCode: 503, headers, getResponse });
}

/** In the limiter's options: `store: new RedisCellStore('login')`. Fails closed, with 503. With `fallback`, such as
 * `new MemoryStore()`, that store counts while Redis does not answer. `quotas` replace `limit` and `windowMs`:
 * [9, 10, 1, 1, 999, 1000, 86400] allows 10 a second and 1,000 a day. Set `limit` to the smallest burst, here 10. */
class RedisCellStore {
  /** @param {string} prefix The limiter's name. @param {{ fallback?: any, quotas?: Quotas }} [options] */
  constructor(prefix, { fallback, quotas } = {}) {
    this.prefix = `${prefix}:`;
    this.fallback = fallback;
    /** @type {Quotas} */
    this.quotas = /** @type {any} */ (quotas);
    this.hit = new AsyncLocalStorage(); // Where the request was counted. It is refunded only there.
    this.counting = Promise.resolve();
  }

  init(/** @type {any} */ options) {
    this.limit = options.limit;
    this.quotas ??= quota(options.limit, options.windowMs);
    this.fallback?.init(options);
  }

  async increment(/** @type {string} */ key) {
    const hit = { redis: false, fallback: false };
    this.hit.enterWith(hit);
    const reply = await throttle(this.prefix + key, ...this.quotas);
    hit.fallback = !reply && this.fallback !== undefined;
    if (hit.fallback) return this.count(key);
    if (!reply) throw unanswered();
    const [limited, , remaining] = reply;
    hit.redis = !limited;
    const totalHits = limited ? this.limit + 1 : Math.max(this.limit - remaining, 1);
    return { totalHits, resetTime: new Date(Date.now() + wait(reply)) };
  }

  /** Counts in the fallback, one request at a time, because MemoryStore changes results that it has returned. */
  async count(/** @type {string} */ key) {
    const counted = this.counting.then(async () => ({ ...await this.fallback.increment(key) }));
    this.counting = counted.then(() => {}, () => {});
    return counted;
  }

  /** Refunds the request, for skipFailedRequests and skipSuccessfulRequests. */
  async decrement(/** @type {string} */ key) {
    const hit = this.hit.getStore();
    if (hit?.redis) await this.refund(key, 1);
    if (hit?.fallback) await this.fallback.decrement(key);
  }

  async resetKey(/** @type {string} */ key) {
    await this.fallback?.resetKey(key);
    return this.refund(key, Number.MAX_SAFE_INTEGER);
  }

  /** Gives tokens back, up to a full limiter. @param {string} key @param {number} tokens */
  async refund(key, tokens) {
    const [maxBurst, count, period, , ...further] = this.quotas;
    await throttle(this.prefix + key, maxBurst, count, period, -tokens, ...further);
  }
}

module.exports = { RedisCellStore, quota, unanswered, wait };
