/** Thrown if Redis does not decide. The response is 503, with these headers except in NestJS. */
class Unanswered extends Error {
  /** @param {unknown} cause */
  constructor(cause) {
    super('Try again later');
    this.name = 'Unanswered';
    this.cause = cause;
    // Callers see the message. The log of Express and NestJS shows the stack, so it says why.
    this.stack += `\nCaused by ${cause}`;
    this.status = 503;
    this.statusCode = 503; // for NestJS
    this.headers = { 'Retry-After': '1', 'Cache-Control': 'no-store' };
  }

  /** Throws any other error. @param {unknown} error */
  static ignore(error) {
    if (!(error instanceof Unanswered)) throw error;
  }

  /** For Hono. */
  getResponse() {
    return new Response(this.message, { status: this.status, headers: this.headers });
  }
}

module.exports = { Unanswered };
