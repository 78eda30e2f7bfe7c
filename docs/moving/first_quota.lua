-- Leaves a limiter of several quotas with its first quota alone, as 1.0 and redis-cell read it.
--
--     redis-cli --eval first_quota.lua user123
--
-- Replies 1, or 0 if the key has no more than one quota.
local text = redis.call('GET', KEYS[1])
if not text or #text <= 19 or #text % 19 ~= 0 or text:find('%D') then return 0 end
-- The key expires at the TAT, rounded up to a whole millisecond.
local milliseconds = tonumber(text:sub(1, 13)) + (text:sub(14, 19) > '000000' and 1 or 0)
redis.call('SET', KEYS[1], text:sub(1, 19), 'PXAT', string.format('%.0f', milliseconds))
return 1
