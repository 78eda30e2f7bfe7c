-- Moves a limiter to new numbers at once: as many tokens count as taken by the new numbers as by the old ones.
--     redis-cli --eval change_plan.lua user123 , 9 10 86400 99 100 86400
-- KEYS: the limiter. ARGV: its old max_burst, count and period in seconds; the new ones. Replies as CL.CHARGE does.
if #KEYS ~= 1 or #ARGV ~= 6 then
    return redis.error_reply('ERR wrong number of arguments')
end
for place, name in ipairs({'old max_burst', 'old count', 'old period', 'new max_burst', 'new count', 'new period'}) do
    local number, least = tonumber(ARGV[place]), name:find('max_burst') and -1 or 1
    -- A script computes exactly with 15 digits. Lua also reads other texts as numbers.
    if not (number and number >= least and number < 1e15) or string.format('%d', number) ~= ARGV[place] then
        local message = 'ERR %s must be a whole number from %d on, of at most 15 digits'
        return redis.error_reply(message:format(name, least))
    end
end
local old, new = {ARGV[1], ARGV[2], ARGV[3]}, {ARGV[4], ARGV[5], ARGV[6]}
local function call(command, numbers, quantity)
    -- Send the numbers as text: Redis 7.2 would send the number 1000000000 as 1e+9.
    local burst = string.format('%.0f', numbers[1])
    return redis.call(command, KEYS[1], burst, numbers[2], numbers[3], string.format('%.0f', quantity))
end
-- A look with a burst that is large enough for a debt, too, shows how many tokens are missing in all.
local reset_after = call('CL.LOOK', old, 0)[5]
local burst = math.ceil(reset_after * old[2] / old[3])
local look = call('CL.LOOK', {burst, old[2], old[3]}, 0)
local taken = look[2] - look[3]
if taken >= 2 ^ 53 then
    return redis.error_reply('ERR more tokens are missing than a script can count')
end
-- Look before the first change: a look fails if the new numbers are wrong, or cannot hold these tokens.
call('CL.LOOK', new, 0)
call('CL.LOOK', {taken, new[2], new[3]}, 0)
-- One token more is given back, because rounding may leave a nanosecond.
call('CL.CHARGE', old, -taken - 1)
return call('CL.CHARGE', new, taken)
