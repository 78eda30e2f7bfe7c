/** Thrown if Redis does not decide. The response is a 503 with the error's `headers`, which NestJS leaves out. */
class Unanswered extends Error {
  /** @param {unknown} cause */
  constructor(cause) {
    super('Try again later');
    this.name = 'Unanswered';
    this.cause = cause;
    // Callers see the message, so the cause is added to the stack instead, which Express and NestJS log.
    this.stack += `\nCaused by ${cause}`;
    this.status = 503;
    this.statusCode = 503; // for NestJS
    this.headers = { 'Retry-After': '1', 'Cache-Control': 'no-store' };
  }

  /** Ignores an outage, and throws any other error. @param {unknown} error */
  static ignore(error) {
    if (!(error instanceof Unanswered)) throw error;
  }

  /** Returns the response, for Hono. */
  getResponse() {
    return new Response(this.message, { status: this.status, headers: this.headers });
  }
}

/** Rejects if the promise has not settled after `ms`. @param {Promise<unknown>} promise @param {number} ms */
function within(promise, ms) {
  /** @type {any} */
  let timer;
  const late = new Promise((_, reject) => {
    // Wait in two halves: a stall of the event loop ends only one of them, and replies are read before the other ends.
    const half = (/** @type {() => void} */ end) => {
      timer = setTimeout(() => setImmediate(end), ms / 2);
      timer.unref?.(); // The fake timers of some tests have no unref().
    };
    half(() => half(() => reject(new Error(`no reply within ${ms} ms`))));
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

module.exports = { Unanswered, within };
