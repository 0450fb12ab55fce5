-- wrk script: each request is another delivery, signed as Standard Webhooks asks, by OpenSSL's libcrypto through LuaJIT.
-- BENCH_SECRET  whsec_<base64>; BENCH_RUN  part of every id; BENCH_JOBS  how many jobs they speak of (job_%07d);
-- BENCH_PAUSE  ms that each connection waits before its next request; BENCH_REPEATED  share of deliveries that are sent again as they were; BENCH_BODY  bytes of a body.
local ffi = require("ffi")
ffi.cdef[[
const void *EVP_sha256(void);
unsigned char *HMAC(const void *md, const void *key, int key_len, const char *d, size_t n, unsigned char *out, unsigned int *len);
int EVP_EncodeBlock(unsigned char *to, const unsigned char *from, int n);
int EVP_DecodeBlock(unsigned char *to, const unsigned char *from, int n);
]]
local crypto
for _, name in ipairs({"libcrypto.so.3", "crypto"}) do
  local found, lib = pcall(ffi.load, name)
  if found then crypto = lib break end
end
assert(crypto, "OpenSSL's libcrypto is not there")

local secret = os.getenv("BENCH_SECRET"):gsub("^whsec_", "")
local key = ffi.new("unsigned char[?]", #secret + 4)
local key_len = crypto.EVP_DecodeBlock(key, ffi.new("unsigned char[?]", #secret + 1, secret), #secret)
key_len = key_len - #secret:match("=*$")
local sha256, mac, mac_len = crypto.EVP_sha256(), ffi.new("unsigned char[32]"), ffi.new("unsigned int[1]")
local encoded = ffi.new("unsigned char[64]")

local run = os.getenv("BENCH_RUN") or "0"
local jobs = tonumber(os.getenv("BENCH_JOBS") or "1000000")
local repeated = tonumber(os.getenv("BENCH_REPEATED") or "0")
local size = tonumber(os.getenv("BENCH_BODY") or "1024")
local shape = '{"id":"%s","type":"job.changed","data":{"id":"job_%07d","status":"running"},"pad":"%s"}'
local pad = string.rep("x", math.max(0, size - #shape:format("evt-" .. run .. "-00000000", 0, "")))
local count, again = 0, nil

function request()
  if not (again and math.random() < repeated) then
    count = count + 1
    again = count
  end
  local id = string.format("evt-%s-%08d", run, again)
  local body = shape:format(id, (again - 1) % jobs, pad)
  local at = tostring(os.time())
  local signed = id .. "." .. at .. "." .. body
  crypto.HMAC(sha256, key, key_len, signed, #signed, mac, mac_len)
  local n = crypto.EVP_EncodeBlock(encoded, mac, 32)
  return wrk.format("POST", wrk.path, {
    ["content-type"] = "application/json", ["webhook-id"] = id, ["webhook-timestamp"] = at,
    ["webhook-signature"] = "v1," .. ffi.string(encoded, n)}, body)
end

local pause = tonumber(os.getenv("BENCH_PAUSE") or "0")
if pause > 0 then
  function delay() return pause end
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nJSON {"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"bad_status":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.status, e.connect + e.read + e.write + e.timeout))
end
