export type Callback = (error: Error | null, result?: {
    current: number;
    ttl: number;
}) => void;
import { Unanswered } from "./unanswered.js";
/** @typedef {(error: Error | null, result?: { current: number, ttl: number }) => void} Callback */
/** Returns a class for the limiter's `store`. Registrations with the same store or prefix share one global limit.
 * @param {import('./limiter.js').Options} options */
export function fastifyStore(options: import("./limiter.js").Options): {
    new (_params?: unknown, ...names: string[]): {
        names: string[];
        /** Returns the store of a separate limit: that of a group, a route, or a handler without a group.
         * @param {any} params */
        child({ groupId, routeInfo: { method, url }, max, timeWindow }: any): /*elided*/ any;
        /** @param {string} key @param {Callback} callback @param {number} timeWindow @param {number} max */
        incr(key: string, callback: Callback, timeWindow: number, max: number, quantity?: number): void;
        /** Takes no token. @param {string} key @param {Callback} callback @param {number} timeWindow @param {number} max */
        read(key: string, callback: Callback, timeWindow: number, max: number): void;
    };
};
export { Unanswered };
