-- Envoy's Lua filter by the published draw, before the router.
local SALT, SHARE = "4f2a9c1d", 0.1
local word, both, xor, right, turn = bit.tobit, bit.band, bit.bxor, bit.rshift, bit.ror

local K, H, prime = {}, {}, 2 -- SHA-256 takes its constants from the roots of the first primes
while #K < 64 do
  local whole = true
  for factor = 2, math.sqrt(prime) do whole = whole and prime % factor > 0 end
  if whole then
    K[#K + 1] = math.floor(prime ^ (1 / 3) % 1 * 2 ^ 32)
    H[#H + 1] = math.floor(prime ^ (1 / 2) % 1 * 2 ^ 32)
  end
  prime = prime + 1
end

function position(text) -- the first 32 bits of SHA-256
  local bits, sums, w = #text * 8, { unpack(H, 1, 8) }, {}
  text = text .. "\128" .. ("\0"):rep((55 - #text) % 64)
  for n = 7, 0, -1 do text = text .. string.char(math.floor(bits / 256 ^ n) % 256) end
  for start = 1, #text, 64 do
    for n = 1, 16 do
      local a, b, c, d = text:byte(start + 4 * n - 4, start + 4 * n - 1)
      w[n] = word(a * 2 ^ 24 + b * 2 ^ 16 + c * 2 ^ 8 + d)
    end
    for n = 17, 64 do
      local x, y = w[n - 15], w[n - 2]
      w[n] = word(w[n - 16] + xor(turn(x, 7), turn(x, 18), right(x, 3))
        + w[n - 7] + xor(turn(y, 17), turn(y, 19), right(y, 10)))
    end
    local a, b, c, d, e, f, g, h = unpack(sums)
    for n = 1, 64 do
      local t = h + xor(turn(e, 6), turn(e, 11), turn(e, 25)) + xor(g, both(e, xor(f, g))) + K[n] + w[n]
      local u = xor(turn(a, 2), turn(a, 13), turn(a, 22)) + xor(both(a, b), both(a, c), both(b, c))
      a, b, c, d, e, f, g, h = word(t + u), a, b, c, word(d + t), e, f, g
    end
    for n, sum in ipairs({ a, b, c, d, e, f, g, h }) do sums[n] = word(sums[n] + sum) end
  end
  return sums[1] % 2 ^ 32
end

function is_drawn(salt, unit, share)
  return position(salt .. ":" .. unit) < math.floor(share * 2 ^ 32 + 0.5)
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local unit = ("; " .. (headers:get("cookie") or "")):match("; session=([^;]+)")
  if not unit then
    -- Envoy's own, and random; the answer below hands it to the visitor.
    unit = headers:get("x-request-id")
    handle:streamInfo():dynamicMetadata():set("envoy.filters.http.lua", "unit", unit)
  end
  headers:replace("x-canary", is_drawn(SALT, unit, SHARE) and "1" or "0")
  handle:clearRouteCache()
end

function envoy_on_response(handle)
  local cookie = handle:streamInfo():dynamicMetadata():get("envoy.filters.http.lua")
  if cookie and cookie["unit"] then
    local kept = "; Path=/; Max-Age=2592000; Secure; SameSite=Lax"
    handle:headers():add("set-cookie", "session=" .. cookie["unit"] .. kept)
  end
end
