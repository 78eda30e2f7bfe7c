// A store for @fastify/rate-limit: `store: FastifyStore`. Beside rate_limit_store.js and node_redis.js.

const { throttle } = require('./node_redis.js'); // or './ioredis.js'
const { quota, unanswered, wait } = require('./rate_limit_store.js');

class FastifyStore {
  /** @param {any} options @param {string} prefix */
  constructor(options, prefix = 'fastify:') {
    this.prefix = prefix;
  }

  /** @param {any} options Those of a route, which has a limit of its own. */
  child(options) {
    const { method, url } = options.routeInfo ?? {};
    return new FastifyStore(options, `${this.prefix}${method} ${url}:`);
  }

  /** @param {string} key @param {Function} callback @param {number} timeWindow @param {number} max */
  async incr(key, callback, timeWindow, max) {
    const reply = await throttle(this.prefix + key, ...quota(max, timeWindow));
    if (!reply) return callback(unanswered());
    callback(null, { current: reply[0] ? max + 1 : max - reply[2], ttl: wait(reply) });
  }
}

module.exports = { FastifyStore };
