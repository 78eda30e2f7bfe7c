/** Thrown if Redis does not decide. The response is 503 and, except in NestJS, `Retry-After: 1`. */
export class Unanswered extends Error {
    /** Throws any other error. @param {unknown} error */
    static ignore(error: unknown): void;
    /** @param {unknown} cause */
    constructor(cause: unknown);
    cause: unknown;
    status: number;
    statusCode: number;
    headers: {
        'Retry-After': string;
    };
    /** For Hono. */
    getResponse(): Response;
}
