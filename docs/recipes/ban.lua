-- Charges an attempt before it is made. Bans a caller who makes too many attempts, for longer with each offence:
--     redis-cli --eval ban.lua attempts:{alice} banned:{alice} offences:{alice} , 4 1 60 86400 60 600 3600
-- KEYS: the limiter of attempts, the ban, the limiter of offences. ARGV: max_burst, count and period of the attempts;
-- the seconds after which an offence is forgiven; the seconds of each ban: the first, the second, all later ones.
-- Replies with the milliseconds until an attempt may be made. 0: this attempt may be made, and has been charged.
-- Permissions: +eval +evalsha +script +pttl +set +cl.throttle +cl.take
local bans = #ARGV - 4
if #KEYS ~= 3 or bans < 1 then
    return redis.error_reply('ERR wrong number of arguments')
elseif KEYS[1] == KEYS[2] or KEYS[2] == KEYS[3] or KEYS[3] == KEYS[1] then
    return redis.error_reply('ERR the attempts, the ban and the offences need a key each')
end
for place = 4, #ARGV do
    -- This is 190 years. The module supports timestamps up to the year 2262.
    local most = place == 4 and math.floor(6e9 / bans) or 6e9
    if not ARGV[place]:find('^[1-9]%d*$') or tonumber(ARGV[place]) > most then
        local name = place == 4 and 'the time until an offence is forgiven' or 'ban ' .. place - 4
        return redis.error_reply('ERR ' .. name .. ' must be a whole number of seconds, from 1 to ' .. most)
    end
end
-- Returns the error of a call. Redis 6.2 puts the script's line before the error code, such as READONLY.
local function error_of(answer)
    return redis.error_reply((answer.err:gsub('^@user_script: %d+: %-', '')))
end

local rest = redis.call('PTTL', KEYS[2])
if rest ~= -2 then
    -- A ban has 0 ms left in its last millisecond.
    return math.max(rest, 1)
end
local answer = redis.pcall('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if answer.err then
    return error_of(answer)
end
local limited, _, _, retry_after = unpack(answer)
if limited == 0 then
    return 0
end
-- The limiter of offences has one token for each ban. The fewer tokens are left, the longer the ban.
local taken, _, left = unpack(redis.call('CL.TAKE', KEYS[3], bans - 1, 1, ARGV[4], 1))
-- The ban lasts at least until an attempt comes back, so a caller who waits for its end can try again.
local ban = math.max(ARGV[#ARGV - left], retry_after)
-- Redis 7.2 would send 100000000 as 1e+08.
local banned = redis.pcall('SET', KEYS[2], bans - left, 'EX', string.format('%.0f', ban))
if banned.err then
    -- The ban could not be set, so undo the offence.
    redis.call('CL.THROTTLE', KEYS[3], bans - 1, 1, ARGV[4], -taken)
    return error_of(banned)
end
return ban * 1000
