// A store for express-rate-limit, express-slow-down and hono-rate-limiter, with the options of rate-limit-redis.

const { AsyncLocalStorage } = require('node:async_hooks');
const { Limiter } = require('./limiter.js');
const { Unanswered } = require('./unanswered.js');

/** @typedef {import('./quotas.js').Quota[]} Quotas */
/** `quotas` replace the limiter's `limit` and `windowMs`.
 * @typedef {{ quotas?: Quotas | ((key: string) => Quotas | Promise<Quotas>) }} OwnOptions */

class RedisCellStore {
  #limiter;
  #quotas;
  /** The limiter's options, from init. @type {any} */
  #options;
  /** @type {AsyncLocalStorage<{ tookToken: boolean }>} */
  #request = new AsyncLocalStorage();

  /** @param {import('./limiter.js').Options & OwnOptions} options */
  constructor({ quotas, ...options }) {
    this.#limiter = new Limiter(options);
    this.#quotas = typeof quotas === 'function' ? quotas : quotas && (() => quotas);
    this.prefix = options.prefix;
  }

  /** Throws if the limiter's options are wrong. The store then lets no request pass.
   * @param {{ limit: number | ((...request: any[]) => unknown), windowMs: number, [option: string]: any }} options */
  init(options) {
    const { limit, windowMs, validate, requestPropertyName } = options;
    const isSlowDown = limit === 0 && validate?.limit === false && requestPropertyName !== 'rateLimit';
    const isFunction = typeof limit === 'function';
    const canExceed = isFunction || limit <= Number.MAX_SAFE_INTEGER;
    let mistake = this.#options && 'each limiter needs its own store, with its own prefix';
    if (!this.#quotas && isSlowDown) mistake = 'express-slow-down needs a store with quotas';
    if (!this.#quotas && isFunction) mistake = 'a function as limit needs a store with quotas';
    if (this.#quotas && !canExceed) mistake = 'no refusal exceeds such a limit: with quotas, set it to the first burst';
    const passOnStoreError = options.passOnStoreError || this.#options?.passOnStoreError;
    this.#options = { ...options, passOnStoreError };
    this.#quotas ??= () => [{ limit: Number(limit), windowMs }];
    if (!mistake) return;
    this.#quotas = () => { throw new TypeError(mistake); };
    this.#quotas('');
  }

  /** @param {string} key */
  async increment(key) {
    const request = { tookToken: false };
    this.#request.enterWith(request);
    try {
      const { isRefused, used, wait } = await this.#throttle(key);
      request.tookToken = !isRefused;
      // A refused request's count must exceed the limit. A function's limit is unknown here, so use the maximum.
      const atLeast = isRefused ? Math.floor(this.#options.limit) + 1 || Number.MAX_SAFE_INTEGER : 1;
      return { totalHits: Math.max(used, atLeast), resetTime: new Date(Date.now() + wait) };
    } catch (error) {
      // With passOnStoreError, an error lets the request pass. That is meant for outages, so refuse it after a mistake.
      if (error instanceof Unanswered || !this.#options?.passOnStoreError) throw error;
      console.error(error);
      return { totalHits: Number.MAX_SAFE_INTEGER, resetTime: new Date(Date.now() + 1000) };
    }
  }

  /** Returns the counts without taking a token. @param {string} key */
  async get(key) {
    const { isRefused, used, wait } = await this.#throttle(key, 0);
    return used ? { totalHits: used - Number(isRefused), resetTime: new Date(Date.now() + wait) } : undefined;
  }

  /** Refunds a request. @param {string} key */
  async decrement(key) {
    // A refused request took no token. If a database driver has lost the async context, we cannot tell whether this
    // request was refused: refund it, unless the limiter refunds refused requests too (skipFailedRequests).
    const { tookToken = !this.#options?.skipFailedRequests } = this.#request.getStore() ?? {};
    // Give up the refund after an error: throwing would lose the response or, in express-rate-limit 7, crash Node.
    if (tookToken) await this.#throttle(key, -1).catch(console.error);
  }

  /** Gives all tokens back. @param {string} key */
  async resetKey(key) {
    // ioredis adds its keyPrefix to the key of DEL, but not to the key of CL.PTHROTTLE, so DEL would miss the key.
    await this.#throttle(key, -Number.MAX_SAFE_INTEGER);
  }

  /** @param {string} key @param {number} [quantity] */
  async #throttle(key, quantity) {
    return this.#limiter.throttle([key], await this.#quotas?.(key), quantity);
  }
}

module.exports = { RedisCellStore, Unanswered };
