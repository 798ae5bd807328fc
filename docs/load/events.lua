-- Page views as fast as they are answered: docs/operations/scale.md.
-- wrk -t2 -c16 -d30s --latency -s events.lua URL -- KEY [EVENTS A REQUEST] [COMMIT COMMIT]
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(arguments)
  size = tonumber(arguments[2] or "100")
  commits = { arguments[3] or "c0ffee0", arguments[4] or "bada550" }
  run, sent = os.time(), 0
  wrk.method = "POST"
  wrk.path = "/v1/events"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["X-Service-Project-Key"] = arguments[1]
end

-- Each event is of another session, and every other one of the treatment.
function request()
  local at, events = os.date("!%Y-%m-%dT%H:%M:%SZ"), {}
  for place = 1, size do
    sent = sent + 1
    local id = string.format("%d-%d-%d", run, number, sent)
    events[place] = string.format(
      '{"event_id":"e-%s","session_id":"s-%s","event":"page_view","occurred_at":"%s",'
        .. '"environment":"load","route":"/","commit":"%s"}',
      id, id, at, commits[1 + sent % 2])
  end
  return wrk.format(nil, nil, nil, '{"events":[' .. table.concat(events, ",") .. ']}')
end

function done(summary, latency)
  local seconds = summary.duration / 1e6
  io.write(string.format("%.0f requests a second, %.0f refused, p99 %.1f ms\n",
    summary.requests / seconds, summary.errors.status, latency:percentile(99) / 1000))
end
