-- KEYS[1] is a limiter; ARGV is how many calls, max_burst, count, and each call's quantity. Returns the tokens it got.
local allowed = 0
for _ = 1, ARGV[1] do
    allowed = allowed + 1 - redis.call('CL.THROTTLE', KEYS[1], ARGV[2], ARGV[3], 1, ARGV[4])[1]
end
return allowed * ARGV[4]
