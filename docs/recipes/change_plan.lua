-- Changes a limiter's numbers such that they count at once: as many tokens are taken of the new ones as were of the old.
--     redis-cli --eval change_plan.lua user123 , 9 10 86400 99 100 86400
-- KEYS[1]; max_burst, count and period in seconds, the old ones, then the new ones. Replies as CL.CHARGE does.
local old, new = {ARGV[1], ARGV[2], ARGV[3]}, {ARGV[4], ARGV[5], ARGV[6]}
local function call(command, numbers, quantity)
    return redis.call(command, KEYS[1], numbers[1], numbers[2], numbers[3], quantity)
end
-- A burst that holds what a debt has taken as well: its look says how many tokens are missing in all.
local reset_after = call('CL.LOOK', old, 0)[5]
local burst = math.ceil(reset_after * old[2] / old[3])
local look = call('CL.LOOK', {burst, old[2], old[3]}, 0)
local taken = look[2] - look[3]
-- An error in the new numbers, or in what these tokens come to, comes before anything is changed.
call('CL.LOOK', new, 0)
call('CL.LOOK', {taken, new[2], new[3]}, 0)
-- One more, for the nanosecond that rounding may leave.
call('CL.CHARGE', old, -taken - 1)
return call('CL.CHARGE', new, taken)
