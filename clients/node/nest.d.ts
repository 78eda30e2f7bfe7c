export class NestStore {
    /** @param {import('./limiter.js').Options} options */
    constructor(options: import("./limiter.js").Options);
    /** @param {string} key @param {number} ttl in ms @param {number} limit @param {number} _block @param {string} name */
    increment(key: string, ttl: number, limit: number, _block: number, name: string): Promise<{
        totalHits: number;
        timeToExpire: number;
        isBlocked: boolean;
        timeToBlockExpire: number;
    }>;
    #private;
}
import { Unanswered } from "./unanswered.js";
export { Unanswered };
