/** Thrown if Redis does not decide. The response is 503, with these headers except in NestJS. */
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
        'Cache-Control': string;
    };
    /** For Hono. */
    getResponse(): Response;
}
