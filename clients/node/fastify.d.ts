export type Callback = (error: Error | null, result?: {
    current: number;
    ttl: number;
}) => void;
import { Unanswered } from "./unanswered.js";
/** @typedef {(error: Error | null, result?: { current: number, ttl: number }) => void} Callback */
/** Returns a class for the limiter's `store`. Registrations that share it, or its prefix, share their global limit.
 * @param {import('./limiter.js').Options} options */
export function fastifyStore(options: import("./limiter.js").Options): {
    new (_params?: unknown, ...names: string[]): {
        names: string[];
        /** Returns the store of a separate limit: that of a group, of a route, or of a handler that is in no group.
         * @param {any} params */
        child({ groupId, routeInfo: { method, url }, max, timeWindow }: any): /*elided*/ any;
        /** @param {string} key @param {Callback} callback @param {number} timeWindow @param {number} max */
        incr(key: string, callback: Callback, timeWindow: number, max: number, quantity?: number): void;
        /** Takes no token. @param {string} key @param {Callback} callback @param {number} timeWindow @param {number} max */
        read(key: string, callback: Callback, timeWindow: number, max: number): void;
    };
};
export { Unanswered };
