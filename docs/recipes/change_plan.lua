-- Moves a limiter to new quotas. Each new quota starts with as many tokens used as the old one had.
--     redis-cli --eval change_plan.lua user123 , 9 10 86400 to 99 100 86400
--     redis-cli --eval change_plan.lua user123 , 9 10 1 499 500 86400 to 99 100 1 24999 25000 86400
-- KEYS: the limiter. ARGV: max_burst, count and period in seconds of each old quota; the word "to"; those of each new
-- quota. A new quota without an old one starts full. Replies like CL.CHARGE.
-- Permissions: +eval +get +set +cl.look +cl.charge
local old, new = {}, {}
local numbers = old
for _, word in ipairs(ARGV) do
    if word == 'to' and numbers == old then
        numbers = new
    elseif #word > 15 then
        return redis.error_reply('ERR a number can have at most 15 digits: a script is not exact with more')
    else
        table.insert(numbers, word)
    end
end
if #KEYS ~= 1 or #old == 0 or #new == 0 or #old % 3 + #new % 3 > 0 then
    return redis.error_reply('ERR wrong number of arguments')
end

-- Redis 7.2 would send 1000000000 as 1e+9.
local function text(number)
    return string.format('%.0f', number)
end

local function call(command, quantity, max_burst, count, period, ...)
    return redis.call(command, KEYS[1], max_burst, count, period, text(quantity), ...)
end

-- Moves the limiter, which holds only one timestamp now, from one quota to another.
local function move(from, to)
    local _, count, period = unpack(from)
    -- With a burst that covers debts as well, CL.LOOK shows how many tokens are missing.
    local burst = text(math.ceil(call('CL.LOOK', 0, unpack(from))[5] * count / period))
    local look = call('CL.LOOK', 0, burst, count, period)
    local taken = look[2] - look[3]
    if taken >= 2 ^ 53 then
        error({err = 'ERR more tokens are missing than a script can count'})
    elseif taken > 0 then
        -- Give back one more token, because rounding may leave a nanosecond.
        call('CL.CHARGE', -taken - 1, unpack(from))
        call('CL.CHARGE', taken, unpack(to))
    end
end

-- Stores the timestamps. The key expires with the last one, rounded up to a millisecond.
local function store(timestamps)
    local last = timestamps[1]
    for _, timestamp in ipairs(timestamps) do
        last = timestamp > last and timestamp or last
    end
    local expires = last:sub(1, 13) + (tonumber(last:sub(14)) > 0 and 1 or 0)
    redis.call('SET', KEYS[1], table.concat(timestamps), 'PXAT', text(expires))
end

-- These calls fail if a number is wrong, or if the key holds no limiter.
call('CL.LOOK', 0, unpack(old))
call('CL.LOOK', 0, unpack(new))
local timestamps, moved = {}, {}
for timestamp in (redis.call('GET', KEYS[1]) or ''):gmatch(('%d'):rep(19)) do
    table.insert(timestamps, timestamp)
end
local done, failure = pcall(function()
    for number, timestamp in ipairs(timestamps) do
        local place = 3 * number - 2
        moved[number] = timestamp
        if old[place] and new[place] then
            store({timestamp})
            move({unpack(old, place, place + 2)}, {unpack(new, place, place + 2)})
            -- If the key has expired, this quota is full.
            moved[number] = redis.call('GET', KEYS[1]) or timestamp
        end
    end
end)
if #timestamps > 0 then
    store(done and moved or timestamps)
end
if done then
    return call('CL.CHARGE', 0, unpack(new))
end
-- A failure may be a table. Redis 6.2 puts the script's line before the error.
return redis.error_reply(((failure.err or failure):gsub('^@user_script: %d+: %-', '')))
