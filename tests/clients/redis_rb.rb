# Rate limiting with redis-rb. As a program: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] ruby redis_rb.rb

require "redis"

# How long a call waits for the server, in seconds.
TIMEOUT = ENV.fetch("TIMEOUT", 0.1).to_f
# What a call without an answer decides: "open" allows it, "closed" refuses it.
FAIL = ENV.fetch("FAIL", "open")

# A client, which threads take turns with: for many threads, put several into a connection_pool. By itself, it would
# ask again, and take again.
def connect
  Redis.new(port: ENV.fetch("REDIS_PORT", 6379).to_i, timeout: TIMEOUT, reconnect_attempts: 0)
end

# Makes a call, and returns the status and the headers to answer an HTTP request with.
def throttle(client, key, max_burst, count, period, quantity = 1)
  limited, limit, remaining, retry_after, reset_after =
    client.call("CL.THROTTLE", key, max_burst, count, period, quantity)
  headers = {
    "X-RateLimit-Limit" => limit,
    "X-RateLimit-Remaining" => remaining,
    "X-RateLimit-Reset" => reset_after,
  }
  # -1 where the call was allowed, and where it asks for more than the limit and never will be.
  headers["Retry-After"] = retry_after if retry_after >= 0
  [limited == 1 ? 429 : 200, headers]
rescue Redis::BaseError => error
  warn "no limits, failing #{FAIL}: #{error.message}"
  FAIL == "open" ? [200, {}] : [503, { "Retry-After" => 1 }]
end

if __FILE__ == $PROGRAM_NAME
  client = connect
  # Three at once and one a minute; the last call asks for four.
  [1, 1, 1, 1, 4].each do |quantity|
    status, headers = throttle(client, "user123", 2, 1, 60, quantity)
    puts "#{status} #{headers.map { |name, value| "#{name}: #{value}" }.join(", ")}"
  end
end
