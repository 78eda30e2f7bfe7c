/** The error for a request that Redis did not decide. The response is 503, with these `headers` except in NestJS. */
class Unanswered extends Error {
  /** @param {unknown} cause */
  constructor(cause) {
    super('Try again later', { cause });
    this.name = 'Unanswered';
    // Clients see the message, so add the cause to the stack, which Express and NestJS only log.
    this.stack += `\nCaused by ${cause}`;
    this.status = 503;
    this.statusCode = 503; // for NestJS
    this.headers = { 'Retry-After': '1', 'Cache-Control': 'no-store' };
  }

  /** Returns the response, for Hono. */
  getResponse() {
    return new Response(this.message, { status: this.status, headers: this.headers });
  }
}

/** Sends a call, and returns the reply. Throws Unanswered after an error, or if there is no reply within `ms`.
 * @param {() => Promise<unknown>} send @param {number} ms */
function answered(send, ms) {
  /** @type {any} */
  let timer;
  const reply = new Promise((resolve, reject) => {
    Promise.resolve(send()).then(resolve, reject);
    // Wait in two halves: a stall of the event loop uses up only one, and replies are read before the other ends.
    const half = (/** @type {() => void} */ end) => { timer = setTimeout(() => setImmediate(end), ms / 2); };
    // If the reply has just been read, `timer` is empty. Do not start another: it would keep the process alive.
    half(() => timer && half(() => reject(new Error(`no reply within ${ms} ms`))));
  });
  return reply.catch((error) => { throw new Unanswered(error); }).finally(() => { timer = clearTimeout(timer); });
}

module.exports = { Unanswered, answered };
