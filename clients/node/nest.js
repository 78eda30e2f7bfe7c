// A storage for @nestjs/throttler: `storage: new NestStore({ sendCommand, prefix: 'shop:' })`.

const { Limiter } = require('./limiter.js');
const { Unanswered } = require('./unanswered.js');

class NestStore {
  #limiter;

  /** @param {import('./limiter.js').Options} options */
  constructor(options) {
    this.#limiter = new Limiter(options);
  }

  /** @param {string} key @param {number} ttl in ms @param {number} limit @param {number} _block @param {string} name */
  async increment(key, ttl, limit, _block, name) {
    const { isRefused, used, wait } = await this.#limiter.throttle([name, key], [{ limit, windowMs: ttl }]);
    const timeToExpire = Math.ceil(wait / 1000);
    return { totalHits: used, timeToExpire, isBlocked: isRefused, timeToBlockExpire: isRefused ? timeToExpire : 0 };
  }
}

module.exports = { NestStore, Unanswered };
