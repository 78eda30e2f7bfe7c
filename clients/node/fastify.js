// A store for @fastify/rate-limit: `store: fastifyStore({ sendCommand, prefix: 'shop:' })`.

const { Limiter } = require('./limiter.js');
const { Unanswered } = require('./unanswered.js');

/** @typedef {(error: Error | null, result?: { current: number, ttl: number }) => void} Callback */

/** Returns a class for the limiter's `store`. Registrations with the same store or prefix share one global limit.
 * @param {import('./limiter.js').Options} options */
function fastifyStore(options) {
  const limiter = new Limiter(options);
  /** The limits of the handlers without a group: each may occur only once. @type {Set<string>} */
  const unnamed = new Set();

  return class FastifyStore {
    /** @param {unknown} [_params] Passed by the limiter. @param {string[]} names */
    constructor(_params, ...names) {
      this.names = names;
    }

    /** Returns the store of a separate limit: that of a group, a route, or a handler without a group.
     * @param {any} params */
    child({ groupId, routeInfo: { method, url } = {}, max, timeWindow }) {
      if (groupId) return new FastifyStore({}, 'group', groupId);
      if (url) return new FastifyStore({}, 'route', `${method} ${url}`);
      const isFunction = [max, timeWindow].some((number) => typeof number === 'function');
      const limit = isFunction ? 'any' : `${max} in ${timeWindow}`;
      const isShared = unnamed.has(limit) || unnamed.has('any') || (limit === 'any' && unnamed.size > 0);
      if (isShared) throw new Error('two handlers may have one limit: give each a groupId');
      unnamed.add(limit);
      return new FastifyStore({}, 'handler');
    }

    /** @param {string} key @param {Callback} callback @param {number} timeWindow @param {number} max */
    incr(key, callback, timeWindow, max, quantity = 1) {
      limiter.throttle([...this.names, key], [{ limit: max, windowMs: timeWindow }], quantity)
        .then(({ used, wait }) => callback(null, { current: used, ttl: wait }), callback);
    }

    /** Takes no token. @param {string} key @param {Callback} callback @param {number} timeWindow @param {number} max */
    read(key, callback, timeWindow, max) {
      this.incr(key, callback, timeWindow, max, 0);
    }
  };
}

module.exports = { Unanswered, fastifyStore };
