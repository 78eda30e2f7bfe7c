/** The error for a request that Redis did not decide. The response is 503, with these `headers` except in NestJS. */
export class Unanswered extends Error {
    /** @param {unknown} cause */
    constructor(cause: unknown);
    status: number;
    statusCode: number;
    headers: {
        'Retry-After': string;
        'Cache-Control': string;
    };
    /** Returns the response, for Hono. */
    getResponse(): Response;
}
/** Sends a call, and returns the reply. Throws Unanswered after an error, or if there is no reply within `ms`.
 * @param {() => Promise<unknown>} send @param {number} ms */
export function answered(send: () => Promise<unknown>, ms: number): Promise<any>;
