-- Carries a limiter of Dragonfly's over to CL.THROTTLE, here with Dragonfly at port 6380:
--     redis-cli --eval from_dragonfly.lua user123 , "$(redis-cli -p 6380 GET user123)"
-- What it stores is CL.THROTTLE's moment; it expires in the millisecond of that moment. None there is none here.
-- A later one that is here already stays: what calls have taken here is not given back.
local moment, here = ARGV[1], redis.call('GET', KEYS[1])
if #moment ~= 19 or (here and here > moment) then
    return 0
end
local milliseconds = tonumber(moment:sub(1, 13)) + (moment:sub(14) > '000000' and 1 or 0)
redis.call('SET', KEYS[1], moment, 'PXAT', string.format('%.0f', milliseconds))
return 1
