-- Counts a wrong password. The wrong password that uses up the last token starts a ban. Each repeated ban is longer.
--     redis-cli --eval ban.lua wrong:{alice} banned:{alice} offences:{alice} , 4 1 60 86400 60 600 3600
-- KEYS: the limiter for wrong passwords, the ban, and the limiter for offences, which counts past bans. ARGV:
-- max_burst, count and period of the first limiter; the time after which an offence is forgiven; and the lengths of the
-- first ban, of the second, and so on. The last length applies to all later bans. All times are in seconds. The reply
-- is the number of milliseconds until the ban ends, or 0 if there is no ban.
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

-- Do not extend a ban: this password may have been sent before the ban started.
local rest = redis.call('PTTL', KEYS[2])
if rest ~= -2 then
    -- PTTL is 0 in a ban's last millisecond, but a reply of 0 would mean that there is no ban.
    return math.max(rest, 1)
end
local wrong = redis.pcall('CL.TAKE', KEYS[1], ARGV[1], ARGV[2], ARGV[3], 1)
if wrong.err then
    -- Remove what Redis 6.2 puts in front of an error code such as READONLY: the script's name and line.
    return redis.error_reply((wrong.err:gsub('^@user_script: %d+: %-', '')))
elseif wrong[3] > 0 then
    return 0
end
-- The limiter for offences has a token for each length of ban. The fewer tokens are left, the longer the ban is.
local left = redis.call('CL.TAKE', KEYS[3], bans - 1, 1, ARGV[4], 1)[3]
local ban = ARGV[#ARGV - left]
redis.call('SET', KEYS[2], bans - left, 'EX', ban)
return ban * 1000
