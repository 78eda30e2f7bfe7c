# Rate limiting with redis-rb. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] ruby redis_rb.rb

require "openssl"
require "redis"

# The thread's own client: a shared one would make threads wait without a timeout. After a fork, call client.close.
def client
  # The timeout, in seconds, applies to each step. By default, redis-rb retries, and may take the tokens twice.
  Thread.current[:limits] ||= Redis.new(
    url: ENV["REDIS_URL"].to_s[/.+/] || "redis://127.0.0.1:6379",
    timeout: (ENV["REDIS_TIMEOUT"].to_s[/.+/] || 0.1).to_f, reconnect_attempts: 0
  )
end

# Calls CL.THROTTLE, and returns its five integers. Raises the library's error if Redis did not decide.
def throttle(key, max_burst, count, period, quantity = 1)
  numbers = [max_burst, count, period, quantity]
  unless key.is_a?(String) && numbers.all?(Integer) && quantity.between?(0, 2**63 - 1)
    raise ArgumentError, "a key must be a String, all else Integers, and a negative quantity would give tokens back"
  end

  begin
    reply = client.call("CL.THROTTLE", key, *numbers)
    raise Redis::ProtocolError, reply.inspect unless reply.is_a?(Array) && reply.size == 5 && reply.all?(Integer)

    decided = reply
  ensure
    # After a failure, a late reply may arrive, or a failover may have made the server a replica.
    client.close unless decided
  end
end

# Three calls pass at once, and one more each minute.
4.times do
  p throttle("user123", 2, 1, 60)
rescue Redis::BaseError, OpenSSL::SSL::SSLError => error
  warn "Redis did not decide: #{error.message}"
end
