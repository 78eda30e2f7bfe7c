-- Returns every string in the database: the key, the text, and the expiry in milliseconds since the epoch.

local function now()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
-- Redis 6.2 lacks PEXPIRETIME. There, the expiry is TIME plus PTTL. Both are read again if the clock has moved on in
-- between.
local function expires_at(key)
    local answer = redis.pcall('PEXPIRETIME', key)
    if type(answer) == 'number' then return answer end
    while true do
        local before, ttl = now(), redis.call('PTTL', key)
        if ttl < 0 then return ttl end
        if now() == before then return before + ttl end
    end
end
local rows = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    if redis.call('TYPE', key).ok == 'string' then
        local text = redis.call('GET', key)
        if text then table.insert(rows, {key, text, expires_at(key)}) end
    end
end
return rows
