# Rate limiting with redis-rb. To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] ruby redis_rb.rb

require "connection_pool"
require "openssl"
require "redis"

TIMEOUT = (ENV["REDIS_TIMEOUT"].to_s[/.+/] || 0.1).to_f
# The threads and fibers of a process share up to 20 connections. The timeout, in seconds, applies to each step: getting
# a free connection, connecting, and reading the reply.
POOL = ConnectionPool.new(size: 20, timeout: TIMEOUT) do
  # After a connection times out or breaks, the next call reconnects. With reconnect_attempts above 0, redis-rb would
  # retry a call that may already have taken its token.
  Redis.new(url: ENV["REDIS_URL"].to_s[/.+/] || "redis://127.0.0.1:6379", timeout: TIMEOUT, reconnect_attempts: 0)
end

# Returns the five integers of CL.THROTTLE's reply, or six if there are further quotas.
def throttle(key, max_burst, count, period, quantity = 1, *further_quotas)
  POOL.with do |redis|
    redis.call("CL.THROTTLE", key, max_burst, count, period, quantity, *further_quotas)
  rescue Redis::BaseError
    # Close the connection: if SELECT has failed on it, redis-rb 5 would go on with database 0.
    redis.close
    raise
  end
end

# The quota allows three calls at once, and then one a minute.
4.times do
  break unless $PROGRAM_NAME == __FILE__

  p throttle("user123", 2, 1, 60)
rescue Redis::BaseError, ConnectionPool::TimeoutError, OpenSSL::SSL::SSLError => error
  # An error that begins with ERR means that an argument is wrong, or that the server has too many clients.
  raise if error.message.match?(/\AERR (?!max number of clients)/)

  warn "Redis did not decide: #{error.message}"
end
