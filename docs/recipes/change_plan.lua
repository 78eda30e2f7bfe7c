-- Changes a limiter's numbers such that they count at once: as many tokens are taken of the new ones as were of the old.
--     redis-cli --eval change_plan.lua user123 , 9 10 86400 99 100 86400
-- KEYS[1]; max_burst, count and period in seconds, the old ones, then the new ones. Replies as CL.CHARGE does.
local old, new = {ARGV[1], ARGV[2], ARGV[3]}, {ARGV[4], ARGV[5], ARGV[6]}
local function charge(numbers, quantity)
    return redis.call('CL.CHARGE', KEYS[1], numbers[1], numbers[2], numbers[3], quantity)
end
-- An error in the new numbers comes first, before anything is changed.
charge(new, 0)
local reply = charge(old, 0)
local limit, remaining = reply[2], reply[3]
local taken = limit - remaining
charge(old, 0 - taken)
return charge(new, taken)
