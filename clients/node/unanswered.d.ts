/** Thrown if Redis does not decide. The response is a 503 with the error's `headers`, which NestJS leaves out. */
export class Unanswered extends Error {
    /** Ignores an outage, and throws any other error. @param {unknown} error */
    static ignore(error: unknown): void;
    /** @param {unknown} cause */
    constructor(cause: unknown);
    cause: unknown;
    status: number;
    statusCode: number;
    headers: {
        'Retry-After': string;
        'Cache-Control': string;
    };
    /** Returns the response, for Hono. */
    getResponse(): Response;
}
/** Rejects if the promise has not settled after `ms`. @param {Promise<unknown>} promise @param {number} ms */
export function within(promise: Promise<unknown>, ms: number): Promise<any>;
