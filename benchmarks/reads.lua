-- wrk script: reads of random operations. BENCH_IDS  a file with an id a line; {id} in the path is replaced.
-- BENCH_TOKEN  sent as a bearer token where it is set.
local ids = {}
for line in io.lines(os.getenv("BENCH_IDS")) do ids[#ids + 1] = line end
local token = os.getenv("BENCH_TOKEN")
local headers = token and {authorization = "Bearer " .. token} or nil
local before, after = wrk.path:match("^(.-){id}(.*)$")
if not before then before, after = wrk.path:match("^(.-)%%7Bid%%7D(.*)$") end

function request()
  return wrk.format("GET", before .. ids[math.random(#ids)] .. after, headers)
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nJSON {"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"bad_status":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.status, e.connect + e.read + e.write + e.timeout))
end
