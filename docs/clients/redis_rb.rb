# Rate limiting with redis-rb. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] ruby redis_rb.rb

require "redis"

# A client for each thread: threads that share one would take turns, and wait without a bound. For a fiber for each
# request, as Falcon has, take a pool of the gem connection_pool. After a fork, call client.close in the child.
def client
  # The timeout is in seconds. redis-rb itself would repeat a call without a reply, and take twice.
  Thread.current[:limits] ||= Redis.new(
    url: ENV["REDIS_URL"].to_s[/.+/] || "redis://127.0.0.1:6379",
    timeout: (ENV["REDIS_TIMEOUT"].to_s[/.+/] || 0.1).to_f, reconnect_attempts: 0
  )
end

# Makes a call. Returns the status and the headers to answer a request with; a call without an answer is refused.
def throttle(key, max_burst, count, period, quantity = 1)
  raise ArgumentError, "a quantity cannot be #{quantity}: it would give tokens back" if quantity.negative?

  begin
    reply = client.call("CL.THROTTLE", key, max_burst, count, period, quantity)
    # Whatever else a server or a proxy says is no answer.
    raise "no reply of CL.THROTTLE" unless reply.is_a?(Array) && reply.size == 5 && reply.all?(Integer)
  rescue StandardError => error
    warn "Redis did not decide: #{error.message}"
    # The connection may have a late reply, or lead to a server that a failover has made a replica.
    client.close
    return [503, { "Retry-After" => 1 }]
  end
  limited, limit, remaining, retry_after, reset_after = reply
  headers = { "X-RateLimit-Limit" => limit, "X-RateLimit-Remaining" => remaining, "X-RateLimit-Reset" => reset_after }
  return [200, headers] if limited.zero?
  # A wait of -1 never ends: the call asks for more than the limit, which may be 0.
  return [limit.zero? ? 403 : 413, headers] if retry_after.negative?

  [429, headers.merge("Retry-After" => retry_after)]
end

# The limiter allows three at once and one a minute; the last call asks for four tokens.
[1, 1, 1, 1, 4].each do |quantity|
  status, headers = throttle("user123", 2, 1, 60, quantity)
  puts "#{status} #{headers.map { |name, value| "#{name}: #{value}" }.join(", ")}"
end
