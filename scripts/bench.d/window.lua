-- The sliding window: a sorted set holds the moments of all calls that were allowed within it.
-- Takes KEYS[1], limit, window in microseconds. Replies with 0 (allowed) or 1 (limited), the limit, and the calls left.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[2])
local used = redis.call('ZCARD', KEYS[1])
if used >= tonumber(ARGV[1]) then
  return {1, tonumber(ARGV[1]), 0}
end
-- Several calls may come in one microsecond, and each needs a member of its own.
redis.call('ZADD', KEYS[1], now, now .. ':' .. used)
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
return {0, tonumber(ARGV[1]), ARGV[1] - used - 1}
