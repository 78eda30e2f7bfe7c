// What the three stores share: calls to redis-cell through the application's own client, each with a time limit.

const { integers } = require('./quotas.js');
const { Unanswered, answered } = require('./unanswered.js');

/** Sends a command and returns the reply. node-redis: `(...words) => client.sendCommand(words)`; ioredis and iovalkey:
 * `(...words) => client.call(...words)`.
 * @typedef {(command: string, ...words: string[]) => Promise<unknown>} SendCommand */
/** Sends a command to the cluster node that has the key. node-redis:
 * `({ key, isReadOnly, command }) => cluster.sendCommand(key, isReadOnly, command)`; ioredis and iovalkey, which cannot
 * find the key in CL.PTHROTTLE: `({ key, command: [name, , ...words] }) =>
 * cluster.eval('return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))', 1, key, name, ...words)`.
 * @typedef {(call: { key: string, isReadOnly: boolean, command: string[] }) => Promise<unknown>} SendCommandCluster */
/** `prefix` starts each key, and names the limiter. `timeout` is the longest wait for a reply in ms, 100 by default.
 * Give either `sendCommand` or `sendCommandCluster`.
 * @typedef {{ prefix: string, timeout?: number, sendCommand?: SendCommand, sendCommandCluster?: SendCommandCluster }}
 *   Options */
/** @typedef {import('./quotas.js').Quota} Quota */
/** `used` is the number of tokens missing from the first quota's burst, plus 1 for a refused request. `wait` is the
 * time in ms until a retry passes or, if this request passes, until all tokens are back.
 * @typedef {{ isRefused: boolean, used: number, wait: number }} Decision */

class Limiter {
  /** @param {Options} options */
  constructor({ prefix, timeout = 100, sendCommand, sendCommandCluster, ...others }) {
    const [unknown] = Object.keys(others);
    if (unknown) throw new TypeError(`redis-cell has no option ${unknown}`);
    if (typeof prefix !== 'string' || !prefix) throw new TypeError("a prefix must name the limiter, like 'login:'");
    if (!(timeout > 0 && timeout < 2 ** 31)) throw new TypeError('the timeout must be a positive number of ms');
    if (!sendCommand === !sendCommandCluster) throw new TypeError('give either sendCommand or sendCommandCluster');
    this.prefix = prefix;
    this.timeout = timeout;
    /** @type {SendCommandCluster} */
    this.send = sendCommandCluster
      ?? (({ command: [name, ...words] }) => /** @type {SendCommand} */ (sendCommand)(name, ...words));
  }

  /** Takes a token. With a negative quantity, gives tokens back. With 0, only checks whether one can be taken.
   * @param {string[]} names @param {Quota[] | undefined} quotas @returns {Promise<Decision>} */
  async throttle(names, quotas, quantity = 1) {
    const numbers = integers(quotas);
    const [first, ...further] = numbers;
    // JSON keeps different names from forming the same key. A changed limit gets a new key.
    const key = this.prefix + JSON.stringify([...names.map(String), ...numbers.flat()]);
    const words = [...first, quantity || 1, ...further.flat()].map(String);
    const command = [quantity ? 'CL.PTHROTTLE' : 'CL.PLOOK', key, ...words];
    const reply = await answered(() => this.send({ key, isReadOnly: !quantity, command }), this.timeout);
    const replied = Array.isArray(reply) ? reply.map(Number) : [];
    if (replied.length < 5 || !replied.every(Number.isInteger)) throw new Unanswered(`an unexpected reply: ${reply}`);
    const [refused, , remaining, retryAfter, resetAfter] = replied;
    // If no retry can ever pass, the wait is a whole window.
    const wait = !refused ? resetAfter : retryAfter < 0 ? first[2] : retryAfter;
    return { isRefused: refused === 1, used: first[0] + 1 - remaining + refused, wait };
  }
}

module.exports = { Limiter };
