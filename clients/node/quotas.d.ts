/**
 * A burst of `burst` requests (`limit` by default), and `limit` more every `windowMs`.
 */
export type Quota = {
    limit: number;
    windowMs: number;
    burst?: number;
};
/** Returns each quota's max_burst, count, and period in ms. @param {Quota[] | undefined} quotas */
export function integers(quotas: Quota[] | undefined): number[][];
