/**
 * Sends a command and returns the reply. node-redis: `(...words) => client.sendCommand(words)`; ioredis and iovalkey:
 * `(...words) => client.call(...words)`.
 */
export type SendCommand = (command: string, ...words: string[]) => Promise<unknown>;
/**
 * Sends a command to the node of a cluster that has the key. node-redis:
 * `({ key, isReadOnly, command }) => cluster.sendCommand(key, isReadOnly, command)`; ioredis and iovalkey, which do not
 * see the key in CL.PTHROTTLE: `({ key, command: [name, , ...words] }) =>
 * cluster.eval('return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))', 1, key, name, ...words)`.
 */
export type SendCommandCluster = (call: {
    key: string;
    isReadOnly: boolean;
    command: string[];
}) => Promise<unknown>;
/**
 * `prefix` is the start of each key, and names the limiter. `timeout` is the longest wait for a reply in ms, 100 by
 * default. Give exactly one of the two functions.
 */
export type Options = {
    prefix: string;
    timeout?: number;
    sendCommand?: SendCommand;
    sendCommandCluster?: SendCommandCluster;
};
export type Quota = import("./quotas.js").Quota;
/**
 * `used` is the number of tokens missing from the first quota's burst, plus 1 for a refused request. `wait` is the
 * time in ms until a retry passes or, if this request passes, until all tokens are back.
 */
export type Decision = {
    isRefused: boolean;
    used: number;
    wait: number;
};
/** Sends a command and returns the reply. node-redis: `(...words) => client.sendCommand(words)`; ioredis and iovalkey:
 * `(...words) => client.call(...words)`.
 * @typedef {(command: string, ...words: string[]) => Promise<unknown>} SendCommand */
/** Sends a command to the node of a cluster that has the key. node-redis:
 * `({ key, isReadOnly, command }) => cluster.sendCommand(key, isReadOnly, command)`; ioredis and iovalkey, which do not
 * see the key in CL.PTHROTTLE: `({ key, command: [name, , ...words] }) =>
 * cluster.eval('return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))', 1, key, name, ...words)`.
 * @typedef {(call: { key: string, isReadOnly: boolean, command: string[] }) => Promise<unknown>} SendCommandCluster */
/** `prefix` is the start of each key, and names the limiter. `timeout` is the longest wait for a reply in ms, 100 by
 * default. Give exactly one of the two functions.
 * @typedef {{ prefix: string, timeout?: number, sendCommand?: SendCommand, sendCommandCluster?: SendCommandCluster }}
 *   Options */
/** @typedef {import('./quotas.js').Quota} Quota */
/** `used` is the number of tokens missing from the first quota's burst, plus 1 for a refused request. `wait` is the
 * time in ms until a retry passes or, if this request passes, until all tokens are back.
 * @typedef {{ isRefused: boolean, used: number, wait: number }} Decision */
export class Limiter {
    /** @param {Options} options */
    constructor({ prefix, timeout, sendCommand, sendCommandCluster, ...others }: Options);
    prefix: string;
    timeout: number;
    /** @type {SendCommandCluster} */
    send: SendCommandCluster;
    /** Takes a token. With a negative quantity, gives tokens back. With 0, only checks whether one can be taken.
     * @param {string[]} names @param {Quota[] | undefined} quotas @returns {Promise<Decision>} */
    throttle(names: string[], quotas: Quota[] | undefined, quantity?: number): Promise<Decision>;
}
