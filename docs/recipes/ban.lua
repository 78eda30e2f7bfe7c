-- Counts a wrong password. The wrong password that uses up the last token starts a ban. Repeated bans are longer:
--     redis-cli --eval ban.lua wrong:{alice} banned:{alice} offences:{alice} , 4 1 60 86400 60 600 3600
-- KEYS: the limiter of wrong passwords, the ban, and the limiter of offences, which counts past bans. ARGV: max_burst,
-- count and period of the first limiter; the seconds after which an offence is forgiven; the length in seconds of the
-- first ban, of the second, and of all later ones. Replies with the milliseconds left of the ban, or 0 if there is none.
-- Permissions: +eval +evalsha +script +pttl +set +cl.take
local bans = #ARGV - 4
if #KEYS ~= 3 or bans < 1 then
    return redis.error_reply('ERR wrong number of arguments')
end
for place = 4, #ARGV do
    if not ARGV[place]:find('^[1-9]%d*$') or #ARGV[place] > 8 then
        local name = place == 4 and 'the time until an offence is forgiven' or 'ban ' .. place - 4
        return redis.error_reply('ERR ' .. name .. ' must be a whole number of seconds, of at most 8 digits')
    end
end

-- A password that was being checked when the ban started does not extend it.
local rest = redis.call('PTTL', KEYS[2])
if rest ~= -2 then
    -- A ban has 0 ms left in its last millisecond.
    return math.max(rest, 1)
end
local wrong = redis.pcall('CL.TAKE', KEYS[1], ARGV[1], ARGV[2], ARGV[3], 1)
if wrong.err then
    -- Redis 6.2 puts the script's line before the error code, such as READONLY.
    return redis.error_reply((wrong.err:gsub('^@user_script: %d+: %-', '')))
elseif wrong[3] > 0 then
    return 0
end
-- The limiter of offences has one token for each ban. The fewer tokens are left, the longer the ban.
local left = redis.call('CL.TAKE', KEYS[3], bans - 1, 1, ARGV[4], 1)[3]
local ban = ARGV[#ARGV - left]
redis.call('SET', KEYS[2], bans - left, 'EX', ban)
return ban * 1000
