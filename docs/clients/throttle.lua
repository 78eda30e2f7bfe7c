-- Limits requests to nginx with redis-cell. nginx.conf shows how to use this file.

local redis = require "nginx.redis"     -- from Debian's lua-nginx-redis; OpenResty has "resty.redis"

-- HOST may also be "[::1]" or "unix:/path". A host name needs a `resolver` line. TIMEOUT, in ms, is for each step.
local HOST, PORT, TIMEOUT = "127.0.0.1", 6379, 100
-- Each nginx worker has 20 connections. Up to 1,000 calls may wait for a free one.
local POOL = { pool = ("throttle %s %d"):format(HOST, PORT), pool_size = 20, backlog = 1000 }

-- Calls CL.THROTTLE with a quota, which a quantity and further quotas may follow. Returns the reply, or nil on failure.
local function call(key, quota)
    local client = redis:new()
    client:set_timeout(TIMEOUT)
    local reply, failure = client:connect(HOST, PORT, POOL)
    if reply then reply, failure = client["CL.THROTTLE"](client, key, unpack(quota)) end
    if reply then
        client:set_keepalive(60000)
        return reply
    end
    -- Do not reuse the connection: a late reply may still arrive, or the server may have become a replica.
    client:close()
    ngx.log(ngx.ERR, "Redis did not decide: ", failure)
end

-- Returns the caller's IPv4 address, or for IPv6 the /64 network, because each customer gets a whole /64.
local function network()
    local bytes, address = ngx.var.binary_remote_addr, ngx.var.remote_addr
    if #bytes == 4 then return address end
    assert(#bytes == 16, "a Unix socket has no address to limit")
    -- Treat an IPv4-mapped IPv6 address like the IPv4 address.
    return address:match("^::ffff:([%d.]+)$")
        or bytes:sub(1, 8):gsub("..", function(pair) return ("%02x%02x:"):format(pair:byte(1, 2)) end) .. ":/64"
end

local function refuse(status, wait)
    ngx.header["Retry-After"], ngx.header["Cache-Control"] = wait, "no-store"
    return ngx.exit(status)
end

-- Charges the request to options.who, or to its IP address if that is empty, and refuses the request if it is limited.
-- If Redis does not answer, refuses the request with 503, or allows each caller options.fallback requests a minute.
local function check(name, quota, options)
    -- In the access phase, a request within its limit would pass "satisfy any", and skip all other access checks.
    assert(ngx.get_phase() == "rewrite", "check belongs in rewrite_by_lua_block")
    options = options or {}
    local who = options.who or ""
    local key = name .. (who == "" and ":" .. network() or ":caller:" .. who)
    local reply = call(key, quota)
    if not reply then
        if not options.fallback then return refuse(503, 1) end
        local counts = ngx.shared.fallback
        if (counts:incr(key, 1, 0, 60) or math.huge) <= options.fallback then return end
        return refuse(429, math.ceil(counts:ttl(key) or 60))
    end
    local limited, limit, remaining, retry_after, reset_after = unpack(reply)
    ngx.header["X-RateLimit-Limit"], ngx.header["X-RateLimit-Remaining"] = limit, remaining
    ngx.header["X-RateLimit-Reset"] = reset_after
    if limited == 0 then return end
    -- A wait of -1 means that the request can never pass, because it asks for more than the limit, which may be 0.
    if retry_after < 0 then return refuse(limit == 0 and 403 or 413) end
    return refuse(429, retry_after)
end

-- Removes the application's own X-RateLimit headers. The values that `check` has set come first.
local function keep_own_headers()
    for _, name in ipairs({ "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset" }) do
        local values = ngx.header[name]
        if type(values) == "table" then ngx.header[name] = values[1] end
    end
end

return { check = check, keep_own_headers = keep_own_headers }
