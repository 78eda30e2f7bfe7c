# Rate limiting with redis-rb. To run this: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] ruby redis_rb.rb

require "redis"

# The longest time that a call waits for a new connection, and for the reply, in seconds.
TIMEOUT = ENV.fetch("TIMEOUT", 0.1).to_f
# The connections of a process, and how long a call waits for a free one.
CONNECTIONS = 20
WAIT = 1

# Connections for all threads, made at the start and not in the first burst. Threads that share one client would take
# turns, and wait without a bound. (The gem connection_pool raises ConnectionPool::TimeoutError when it is full.)
class Pool
  class Full < StandardError; end

  def initialize
    # redis-rb itself would repeat a call without a reply, and take twice.
    settings = { port: ENV.fetch("REDIS_PORT", 6379).to_i, timeout: TIMEOUT, reconnect_attempts: 0 }
    @free = Array.new(CONNECTIONS) { Redis.new(settings) }
    @mutex = Mutex.new
    @returned = ConditionVariable.new
    # How many calls in a row got no answer, and when the last call was made.
    @unanswered = @asked = 0
    @free.each(&:ping)
  rescue Redis::BaseError => error
    warn "no server yet: #{error.message}"
  end

  def call(*words)
    client = borrow
    # A server that has answered none of these calls is silent: only one call per TIMEOUT still asks it.
    raise Redis::TimeoutError, "the server is silent" if @unanswered >= CONNECTIONS && now < @asked + TIMEOUT

    @asked = now
    client.call(*words).tap { @unanswered = 0 }
  rescue Redis::BaseError => error
    lost = error.is_a?(Redis::BaseConnectionError)
    @unanswered = lost ? @unanswered + 1 : 0
    # The other connections were most likely lost too, or lead to a server that has become a replica: each is made
    # again.
    if lost || error.message.start_with?("READONLY")
      client.close
      @mutex.synchronize { @free.each(&:close) }
    end
    raise
  ensure
    @mutex.synchronize { @free.push(client) && @returned.signal } if client
  end

  private

  def borrow
    ends = now + WAIT
    @mutex.synchronize do
      @returned.wait(@mutex, ends - now) while @free.empty? && now < ends
      @free.pop or raise Full, "every connection is in use"
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# Makes a call, and returns the status and the headers to answer an HTTP request with. A call without a reply is
# allowed if `fail` is "open", and refused if it is "closed". A call that gets no free connection is refused.
def throttle(pool, key, max_burst, count, period, quantity = 1, fail:)
  # A negative quantity would give tokens back; the server's error for no integer would let the call through.
  raise ArgumentError, "no quantity" unless quantity.is_a?(Integer) && quantity.between?(0, 2**63 - 1)

  limited, limit, remaining, retry_after, reset_after =
    pool.call("CL.THROTTLE", key, max_burst, count, period, quantity)
  headers = {
    "X-RateLimit-Limit" => limit,
    "X-RateLimit-Remaining" => remaining,
    "X-RateLimit-Reset" => reset_after,
  }
  # The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
  headers["Retry-After"] = retry_after if retry_after >= 0
  return [retry_after < 0 ? 413 : 429, headers] if limited == 1

  [200, headers]
rescue Pool::Full => error
  warn "refused: #{error.message}"
  [503, { "Retry-After" => 1 }]
rescue Redis::BaseError => error
  warn "no limits, failing #{fail}: #{error.message}"
  fail == "open" ? [200, {}] : [503, { "Retry-After" => 1 }]
end

if __FILE__ == $PROGRAM_NAME
  pool = Pool.new
  # The limiter allows three at once and one a minute; the last call asks for four tokens.
  [1, 1, 1, 1, 4].each do |quantity|
    status, headers = throttle(pool, "user123", 2, 1, 60, quantity, fail: ENV.fetch("FAIL", "open"))
    puts "#{status} #{headers.map { |name, value| "#{name}: #{value}" }.join(", ")}"
  end
end
