// A store for @fastify/rate-limit: `store: FastifyStore`. Beside rate_limit_store.js and node_redis.js.

const { throttle } = require('./node_redis.js'); // or './ioredis.js'
const { quota, unanswered, wait } = require('./rate_limit_store.js');

class FastifyStore {
  /** @param {any} options @param {string} prefix */
  constructor(options, prefix = 'fastify:') {
    this.prefix = prefix;
  }

  /** @param {any} options Those of a route with a limit of its own. */
  child({ routeInfo: { method, url } = {} }) {
    // A handler that fastify.rateLimit() makes has no route: the order in which they are made names them.
    const name = url ? `${method} ${url}` : `#${FastifyStore.handlers += 1}`;
    return new FastifyStore({}, `${this.prefix}${name}:`);
  }

  /** @param {string} key @param {Function} callback @param {number} timeWindow @param {number} max */
  incr(key, callback, timeWindow, max) {
    throttle(this.prefix + key, ...quota(max, timeWindow)).then((reply) => {
      if (!reply) throw unanswered();
      return { current: reply[0] ? max + 1 : max - reply[2], ttl: wait(reply) };
    }).then((result) => callback(null, result), callback);
  }
}
FastifyStore.handlers = 0;

module.exports = { FastifyStore };
