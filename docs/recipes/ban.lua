-- Charges an attempt before it is made, and keeps out a caller who has made too many, longer with each offence:
--     redis-cli --eval ban.lua attempts:{alice} banned:{alice} offences:{alice} , 4 1 60 86400 60 600 3600
-- KEYS: the limiter of attempts, the ban, the limiter of offences. ARGV: max_burst, count and period of the attempts;
-- the seconds after which an offence is forgiven; the seconds of the first ban, of the second, of every later one.
-- Replies the milliseconds until an attempt may be made, 0 if this one may: then it is charged.
local rest = redis.call('PTTL', KEYS[2])
if rest ~= -2 then
    -- In its last millisecond, a ban has 0 of them left.
    return math.max(rest, 1)
end
local limited, _, _, retry_after = unpack(redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3]))
if limited == 0 then
    return 0
end
-- A limiter of as many offences as there are bans: the fewer are left, the longer is the ban.
local bans = #ARGV - 4
local left = redis.call('CL.TAKE', KEYS[3], bans - 1, 1, ARGV[4], 1)[3]
-- The ban lasts at least until an attempt is back: a caller that waits as it is told is let in.
local ban = math.max(ARGV[#ARGV - left], retry_after)
redis.call('SET', KEYS[2], bans - left, 'EX', ban)
return ban * 1000
