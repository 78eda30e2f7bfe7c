# Rate limiting with redis-rb. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] ruby redis_rb.rb

require "openssl"
require "redis"

Undecided = Class.new(StandardError)
# What redis-rb and the network raise. The last three come from a reply that breaks the protocol.
FAILURES = [Redis::BaseError, SystemCallError, SocketError, IOError, OpenSSL::SSL::SSLError,
            ArgumentError, RangeError, SystemStackError].freeze

# The thread's own client: threads that share one wait for each other without a limit. If each request has a fiber, as in
# Falcon, use a pool from the gem connection_pool. After a fork, call client.close in the child.
def client
  # The timeout, in seconds, holds for each step. By default, redis-rb retries, and may take twice.
  Thread.current[:limits] ||= Redis.new(
    url: ENV["REDIS_URL"].to_s[/.+/] || "redis://127.0.0.1:6379",
    timeout: (ENV["REDIS_TIMEOUT"].to_s[/.+/] || 0.1).to_f, reconnect_attempts: 0
  )
end

# Calls CL.THROTTLE, and returns its five integers. Raises Undecided if Redis did not decide.
def throttle(key, max_burst, count, period, quantity = 1)
  numbers = [max_burst, count, period, quantity]
  unless key.is_a?(String) && numbers.all? { |number| number.is_a?(Integer) && number.bit_length < 64 }
    raise ArgumentError, "a key is a String, and the other arguments are 64-bit integers"
  end
  raise ArgumentError, "a quantity of #{quantity} would give tokens back" if quantity.negative?

  begin
    reply = client.call("CL.THROTTLE", key, *numbers)
    raise Redis::ProtocolError, reply.inspect unless reply.is_a?(Array) && reply.size == 5 && reply.all?(Integer)

    decided = reply
  rescue *FAILURES => error
    raise Undecided, error.message
  ensure
    # The connection may still get a late reply, or lead to a server that a failover has made a replica.
    client.close unless decided
  end
end

# Three calls pass at once, and one more each minute.
4.times do
  p throttle("user123", 2, 1, 60)
rescue Undecided => error
  warn "Redis did not decide: #{error.message}"
end
