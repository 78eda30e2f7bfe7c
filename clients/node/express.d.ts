export type Quotas = import("./quotas.js").Quota[];
/**
 * `quotas` replace the limiter's `limit` and `windowMs`.
 */
export type OwnOptions = {
    quotas?: Quotas | ((key: string) => Quotas | Promise<Quotas>);
};
/** @typedef {import('./quotas.js').Quota[]} Quotas */
/** `quotas` replace the limiter's `limit` and `windowMs`.
 * @typedef {{ quotas?: Quotas | ((key: string) => Quotas | Promise<Quotas>) }} OwnOptions */
export class RedisCellStore {
    /** @param {import('./limiter.js').Options & OwnOptions} options */
    constructor({ quotas, ...options }: import("./limiter.js").Options & OwnOptions);
    prefix: string;
    /** Throws if the limiter's options are wrong. The store then lets no request pass.
     * @param {{ limit: number | ((...request: any[]) => unknown), windowMs: number, [option: string]: any }} options */
    init(options: {
        limit: number | ((...request: any[]) => unknown);
        windowMs: number;
        [option: string]: any;
    }): void;
    /** @param {string} key */
    increment(key: string): Promise<{
        totalHits: number;
        resetTime: Date;
    }>;
    /** Returns the counts without taking a token. @param {string} key */
    get(key: string): Promise<{
        totalHits: number;
        resetTime: Date;
    } | undefined>;
    /** Refunds a request. @param {string} key */
    decrement(key: string): Promise<void>;
    /** Gives all tokens back. @param {string} key */
    resetKey(key: string): Promise<void>;
    #private;
}
import { Unanswered } from "./unanswered.js";
export { Unanswered };
