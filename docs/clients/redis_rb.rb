# Rate limiting with redis-rb. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] ruby redis_rb.rb

require "connection_pool"
require "openssl"
require "redis"

TIMEOUT = (ENV["REDIS_TIMEOUT"].to_s[/.+/] || 0.1).to_f
# All threads and fibers of a process share at most 20 connections. The timeout, in seconds, applies to each step.
POOL = ConnectionPool.new(size: 20, timeout: TIMEOUT) do
  # After a timeout or a broken connection, the next call reconnects. With reconnect_attempts, redis-rb would retry a
  # call, which may have taken its token.
  Redis.new(url: ENV["REDIS_URL"].to_s[/.+/] || "redis://127.0.0.1:6379", timeout: TIMEOUT, reconnect_attempts: 0)
end

# Returns the five integers of CL.THROTTLE, six with further quotas.
def throttle(key, max_burst, count, period, quantity = 1, *further_quotas)
  POOL.with do |redis|
    redis.call("CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)
  rescue Redis::BaseError
    # Otherwise, redis-rb 5 would keep a connection on which SELECT was refused, and use database 0.
    redis.close
    raise
  end
end

# Three calls pass at once, and one more each minute.
4.times do
  break unless $PROGRAM_NAME == __FILE__

  p throttle("user123", 2, 1, 60)
rescue Redis::BaseError, ConnectionPool::TimeoutError, OpenSSL::SSL::SSLError => error
  # An argument is wrong. A server with too many clients replies with ERR, too.
  raise if error.message.match?(/\AERR (?!max number of clients)/)

  warn "Redis did not decide: #{error.message}"
end
