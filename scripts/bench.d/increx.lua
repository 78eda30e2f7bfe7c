-- A counter of a fixed window, for servers without INCREX. Does the same as the call
-- INCREX KEYS[1] BYINT by UBOUND most SATURATE EX seconds ENX.
-- Takes KEYS[1], by, most, seconds. Replies with the count, and with the number that was added to it.
local count = tonumber(redis.call('GET', KEYS[1]) or 0)
local by = math.min(tonumber(ARGV[1]), math.max(ARGV[2] - count, 0))
count = redis.call('INCRBY', KEYS[1], by)
if redis.call('TTL', KEYS[1]) < 0 then
  redis.call('EXPIRE', KEYS[1], ARGV[3])
end
return {count, by}
