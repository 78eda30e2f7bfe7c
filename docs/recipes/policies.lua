#!lua name=policies

-- Limits by name. FUNCTION LOAD REPLACE of this file changes them for all callers at once:
--     FCALL throttle 1 user123 gold [quantity]

-- Name, max_burst, count, period in seconds, and the last three of each further quota. Add a quota at the end: the
-- order counts.
local policies = {
    {'free', 9, 10, 60},
    {'gold', 99, 100, 60, 9999, 10000, 86400},
}
-- The names that programs call: the file has to have a policy for each.
local called = {'free', 'gold'}

-- The server refuses a file whose code fails, and keeps the old one. There is no `error` while a file is loaded, nor
-- `pairs`. A call of a function that this table lacks fails too, and its name tells the mistake.
local mistake = {}
local by_name = {}
for number = 1, #policies do
    local policy = policies[number]
    if #policy % 3 ~= 1 or #policy < 4 or #policy > 25 then mistake.not_three_numbers_for_each_of_1_to_8_quotas() end
    for place = 2, #policy, 3 do
        local max_burst, count, period = policy[place], policy[place + 1], policy[place + 2]
        -- 0 / 0, which is no number, is not too small either.
        if not (max_burst >= -1 and count >= 1 and period >= 1) then mistake.a_number_is_too_small() end
        if max_burst % 1 + count % 1 + period % 1 > 0 then mistake.a_number_is_not_whole() end
        if count > period * 1e9 then mistake.more_than_one_token_a_nanosecond() end
        -- These seconds are 190 years; the module counts to the year 2262.
        if (max_burst + 1) * period / count > 6e9 or period > 2 ^ 53 then mistake.a_number_is_too_large() end
    end
    if policy[1] ~= policy[1] .. '' then mistake.a_policy_without_a_name() end
    if by_name[policy[1]] then mistake.two_policies_of_one_name() end
    by_name[policy[1]] = policy
end
for number = 1, #called do
    if not by_name[called[number]] then mistake.no_policy_of_a_name_that_is_called() end
end

local function throttle(keys, args)
    if #keys ~= 1 or #args < 1 or #args > 2 then
        return redis.error_reply('ERR wrong number of arguments')
    end
    local policy = by_name[args[1]]
    if not policy then
        return redis.error_reply('ERR no policy of that name')
    end
    -- Send the numbers as text: Redis 7.2 would send the number 1000000000 as 1e+9.
    local words = {}
    for place = 2, #policy do
        words[place - 1] = string.format('%.0f', policy[place])
    end
    table.insert(words, 4, args[2] or 1)
    return redis.call('CL.THROTTLE', keys[1], unpack(words))
end

redis.register_function('throttle', throttle)
