// The generator against servers that behave, that stall, and that do what no server should.
#include "measure/load/generator.h"

#include <gtest/gtest.h>

#include <mutex>

#include "measure/load/schedule.h"
#include "measure/load/scripted_server.h"
#include "measure/load/summary.h"

namespace bolide::load {
namespace {

const auto kNoProgress = [](const LoadProgress&) {};

Target target_of(const ScriptedServer& server, Dialect dialect = Dialect::kOpenaiChat) {
  Target target;
  target.url = *http::parse_url(server.url());
  target.address = *http::resolve(target.url, 5);
  target.dialect = dialect;
  target.route = route(dialect, "m");
  return target;
}

RunLog run(const Target& target, const LoadPlan& plan) {
  const std::atomic<bool> stop{false};
  const auto body = [&](int64_t index) {
    RequestFields fields;
    fields.model = "m";
    fields.prompt = fmt::format("prompt {}", index);
    return request_body(target.dialect, fields);
  };
  auto log = run_load(target, plan, body, stop, kNoProgress);
  EXPECT_TRUE(log);
  return *std::move(log);
}

LoadPlan closed(int32_t concurrency, int64_t requests) {
  LoadPlan plan;
  plan.concurrency = concurrency;
  plan.requests_max = requests;
  plan.duration_s = 20;
  plan.timeout_s = 10;
  return plan;
}

void serve_well(Peer& peer) {
  while (!peer.next_request().empty())
    if (!peer.answer(8, 2)) return;
}

TEST(LoadGenerator, ClosedLoopCountsWhatWasSent) {
  std::mutex mutex;
  std::vector<std::string> seen;
  ScriptedServer server([&](Peer& peer) {
    for (std::string request = peer.next_request(); !request.empty(); request = peer.next_request()) {
      {
        const std::scoped_lock lock(mutex);
        seen.push_back(request.substr(request.find("\r\n\r\n") + 4));
      }
      if (!peer.answer(8, 2)) return;
    }
  });
  const RunLog log = run(target_of(server), closed(3, 30));
  ASSERT_EQ(log.requests.size(), 30u);
  EXPECT_TRUE(log.faults.empty());
  EXPECT_EQ(log.events, 240);
  EXPECT_EQ(log.gaps.size(), 210u);
  EXPECT_EQ(log.connections, 3);       // kept from one request to the next
  EXPECT_EQ(server.connections(), 4);  // the first was resolve's
  for (const RequestRecord& record : log.requests) {
    EXPECT_TRUE(record.ok);
    EXPECT_EQ(record.events, 8);
    EXPECT_EQ(record.output_tokens, 8);
    EXPECT_EQ(record.prompt_tokens, 9);
    EXPECT_GE(record.first_s - record.due_s, 0.002);
    EXPECT_GE(record.last_s - record.due_s, 0.016);  // whenever the first was read
    EXPECT_GE(record.last_s, record.first_s);
    EXPECT_LE(record.last_s, record.end_s);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_NE(seen[0].find("\"stream\":true"), std::string::npos);
}

TEST(LoadGenerator, OtherDialects) {
  ScriptedServer completions([](Peer& peer) {
    while (!peer.next_request().empty()) {
      peer.start_stream();
      for (int i = 0; i < 5; ++i) peer.event(R"({"choices":[{"text":"x","index":0,"finish_reason":null}]})");
      peer.event(R"({"choices":[{"text":"","index":0,"finish_reason":"length"}]})");
      peer.event("[DONE]");
      peer.end_stream();
    }
  });
  const RunLog plain = run(target_of(completions, Dialect::kOpenai), closed(1, 4));
  EXPECT_EQ(plain.events, 20);
  EXPECT_TRUE(plain.requests[3].ok);
  ScriptedServer triton([](Peer& peer) {  // neither [DONE] nor a length: the stream ends with the connection
    peer.next_request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    for (int i = 0; i < 5; ++i) peer.send("data: {\"model_name\":\"m\",\"text_output\":\"x\"}\n\n");
  });
  const RunLog stream = run(target_of(triton, Dialect::kKserve), closed(1, 4));
  EXPECT_EQ(stream.events, 20);
  EXPECT_TRUE(stream.faults.empty());
  EXPECT_EQ(stream.connections, 4);
}

// A server whose one worker stops for a second: requests that were due meanwhile have waited for it, whether or not
// they could be sent.
TEST(LoadGenerator, AStallIsInTheTailOfAnOpenLoop) {
  std::mutex worker;
  std::atomic<int> served{0};
  ScriptedServer server([&](Peer& peer) {
    while (!peer.next_request().empty()) {
      {
        const std::scoped_lock lock(worker);
        if (++served == 120) pause_ms(1000);
      }
      if (!peer.answer(2, 1)) return;
    }
  });
  LoadPlan plan;
  plan.arrivals_s = arrival_times(Arrival::kFixed, 50, 4, 0, 1);
  plan.duration_s = 4;
  const RunLog log = run(target_of(server), plan);
  const Summary summary = summarise_run(log, plan, {}, 50);
  EXPECT_EQ(summary.ok, 200);
  EXPECT_GE(summary.ttft.percentiles[3].value, 0.9);
  // A quarter of all requests were due while it stood still.
  std::vector<double> waits;
  for (const RequestRecord& record : log.requests) waits.push_back(record.first_s - record.due_s);
  EXPECT_GE(quantile(waits, 0.99), 0.9);
  EXPECT_GE(quantile(waits, 0.9), 0.4);
  EXPECT_LT(quantile(waits, 0.5), 0.2);
}

// The same with a generator that may hold one connection only: it cannot send what is due, and says so.
TEST(LoadGenerator, WhatItCouldNotSendInTimeIsMeasuredAndSaid) {
  ScriptedServer server([](Peer& peer) {
    while (!peer.next_request().empty())
      if (!peer.answer(2, 10)) return;  // 20 ms: 50 a second at most
  });
  LoadPlan plan;
  plan.arrivals_s = arrival_times(Arrival::kFixed, 100, 1, 0, 1);
  plan.duration_s = 1;
  plan.connections_max = 1;
  const RunLog log = run(target_of(server), plan);
  const Summary summary = summarise_run(log, plan, {}, 100);
  EXPECT_EQ(summary.ok, 100);
  EXPECT_FALSE(summary.kept_plan);
  EXPECT_GE(summary.late_p99_s, 0.5);
  const RequestRecord& last = log.requests.back();
  EXPECT_GE(last.first_s - last.due_s, 0.9);  // sent a second late, and that is in its latency
  EXPECT_LE(last.first_s - last.sent_s, 0.5);
}

TEST(LoadGenerator, HostileServersAreErrorsByKind) {
  struct Case {
    const char* kind;
    std::function<void(Peer&)> serve;
  };
  const std::vector<Case> cases = {
      {"bad http",
       [](Peer& p) {
         p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n");
         pause_ms(50);
       }},
      {"bad http",
       [](Peer& p) {
         p.send("HTTP/1.1 200 OK\r\n");
         while (!p.stopped() && p.send("X-Endless: yes\r\n")) {
         }
       }},
      {"closed early", [](Peer&) {}},
      {"closed early",
       [](Peer& p) {
         p.start_stream();
         p.token(1);
       }},
      {"bad event",
       [](Peer& p) {
         p.start_stream();
         p.event("{not json");
         pause_ms(50);
       }},
      {"bad event",
       [](Peer& p) {
         p.start_stream();
         p.event(std::string(100000, '['));
         pause_ms(50);
       }},
      {"event too long",
       [](Peer& p) {
         p.start_stream();
         p.event(std::string(2 << 20, 'x'));
         pause_ms(50);
       }},
      {"error in stream",
       [](Peer& p) {
         p.start_stream();
         p.token(1);
         p.event(R"({"error":{"message":"no memory"}})");
         pause_ms(50);
       }},
      {"http 429",
       [](Peer& p) {
         p.send("HTTP/1.1 429 Too Many\r\nContent-Length: 28\r\n\r\n{\"error\":{\"message\":\"full\"}}");
         p.next_request();
       }},
      {"no stream",
       [](Peer& p) {
         p.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
         p.next_request();
       }},
      {"no tokens",
       [](Peer& p) {
         p.start_stream();
         p.event("[DONE]");
         p.end_stream();
         p.next_request();
       }},
      {"unfinished",
       [](Peer& p) {
         p.start_stream();
         p.token(1);
         p.end_stream();
         p.next_request();
       }},
      {"timeout",
       [](Peer& p) {
         p.start_stream();
         p.token(1);
         p.next_request();
       }},
      {"timeout", [](Peer& p) { p.next_request(); }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.kind);
    ScriptedServer server([&](Peer& peer) {
      if (!peer.next_request().empty()) each.serve(peer);
    });
    LoadPlan plan = closed(2, 4);
    plan.timeout_s = 0.4;
    const RunLog log = run(target_of(server), plan);
    EXPECT_EQ(log.requests.size(), 4u);
    ASSERT_EQ(log.faults.size(), 1u);
    EXPECT_EQ(log.faults.begin()->first, each.kind);
    EXPECT_EQ(log.faults.begin()->second.count, 4);
    EXPECT_LE(log.faults.begin()->second.example.size(), 800u);
    const Summary summary = summarise_run(log, plan, {}, 0);
    EXPECT_EQ(summary.failed, 4);
    EXPECT_EQ(summary.ok, 0);
    EXPECT_FALSE(summary.steady.found);
    EXPECT_FALSE(details_text(summary).empty());
  }
}

TEST(LoadGenerator, AKeptConnectionThatTheServerClosesIsNoError) {
  ScriptedServer server([](Peer& peer) {  // says keep-alive, and closes behind each answer
    if (!peer.next_request().empty()) peer.answer(2, 0);
  });
  LoadPlan plan;
  plan.arrivals_s = arrival_times(Arrival::kFixed, 100, 0.5, 0, 1);
  plan.duration_s = 0.5;
  const RunLog log = run(target_of(server), plan);
  EXPECT_TRUE(log.faults.empty()) << log.faults.begin()->first;
  for (const RequestRecord& record : log.requests) EXPECT_TRUE(record.ok);
}

TEST(LoadGenerator, NobodyThere) {
  Target target;
  {
    ScriptedServer server(serve_well);
    target = target_of(server);
  }
  const RunLog log = run(target, closed(1, 3));
  EXPECT_EQ(log.faults.at("connection").count, 3);
  EXPECT_GE(log.end_s, 0.2);  // users wait behind an error
}

TEST(LoadGenerator, StopsWhenAsked) {
  ScriptedServer server([](Peer& peer) {
    while (!peer.next_request().empty())
      if (!peer.answer(1000, 5)) return;
  });
  const Target target = target_of(server);
  std::atomic<bool> stop{false};
  std::thread later([&] {
    pause_ms(400);
    stop = true;
  });
  LoadPlan plan = closed(2, 0);
  const auto body = [](int64_t) { return std::string("{}"); };
  const auto log = run_load(target, plan, body, stop, kNoProgress);
  later.join();
  ASSERT_TRUE(log);
  EXPECT_TRUE(log->interrupted);
  EXPECT_LT(log->end_s, 2);
  const Summary summary = summarise_run(*log, plan, {}, 0);
  EXPECT_EQ(summary.interrupted, 2);
  EXPECT_EQ(summary.failed, 0);
  EXPECT_GT(log->events, 10);
}

TEST(LoadSummary, GoodputCountsPromisesAndErrors) {
  RunLog log;
  LoadPlan plan;
  plan.concurrency = 1;
  for (int i = 0; i < 100; ++i) {
    RequestRecord record;
    record.due_s = record.sent_s = 0.1 * i;
    record.first_s = record.due_s + (i % 10 == 0 ? 0.6 : 0.1);  // 10 are late
    record.events = 11;
    record.last_s = record.first_s + (i % 10 == 1 ? 1.0 : 0.2);  // 10 are slow
    record.end_s = record.last_s;
    record.ok = i % 10 != 2;  // 10 have failed
    log.requests.push_back(record);
  }
  log.issue_end_s = log.end_s = 10;
  const Summary summary = summarise_run(log, plan, *parse_promise("ttft=500ms,itl=50ms"), 0);
  EXPECT_EQ(summary.counted, 100);
  EXPECT_EQ(summary.kept, 70);
  EXPECT_NEAR(summary.goodput_per_s, 7, 1e-9);
  EXPECT_NEAR(summary.itl.percentiles[0].value, 0.02, 1e-9);
  EXPECT_NEAR(summary.ttft.max, 0.6, 1e-9);
  EXPECT_LT(summary.kept_share.low, 0.7);
  EXPECT_GT(summary.kept_share.high, 0.7);
}

// What is taken for warm-up is left out of the percentiles, but not kept quiet.
TEST(LoadSummary, WhatIsLeftOutIsSaid) {
  RunLog log;
  LoadPlan plan;
  plan.concurrency = 1;
  log.events_per_window.assign(400, 5);
  for (int i = 0; i < 400; ++i) {
    RequestRecord record;
    record.due_s = record.sent_s = 0.05 * i;
    record.first_s = record.due_s + (i < 50 ? 0.9 : 0.1) + 0.001 * (i % 7);
    record.last_s = record.end_s = record.first_s;
    record.events = 1;
    record.ok = true;
    log.requests.push_back(record);
  }
  log.issue_end_s = log.end_s = 20;
  const Summary summary = summarise_run(log, plan, {}, 0);
  EXPECT_TRUE(summary.steady.found);
  EXPECT_NEAR(summary.steady.warmup_s, 2.5, 0.3);
  EXPECT_LT(summary.ttft.max, 0.2);
  EXPECT_EQ(summary.counted + summary.left_out, 400);
  EXPECT_NEAR(summary.left_out_ttft_max, 0.906, 1e-9);
  EXPECT_NE(details_text(summary).find("first token after up to 906 ms"), std::string::npos) << details_text(summary);
}

TEST(LoadSummary, PromisesAreParsed) {
  const auto promise = parse_promise("ttft=0.5s,e2e=10s");
  ASSERT_TRUE(promise);
  EXPECT_EQ(*promise->ttft_s, 0.5);
  EXPECT_EQ(*promise->e2e_s, 10);
  EXPECT_FALSE(promise->itl_s);
  for (const char* text : {"ttft", "ttft=", "ttft=5", "ttft=-1ms", "x=1ms", "ttft=1ms,,", "ttft=1 ms", "ttft=infs"})
    EXPECT_FALSE(parse_promise(text)) << text;
}

TEST(LoadDialect, EventsAndBodies) {
  StreamEvent event = read_event(R"({"choices":[{"delta":{"content":"ab"},"finish_reason":"stop"}],"usage":null})");
  EXPECT_TRUE(event.valid && event.finished && !event.failed);
  EXPECT_EQ(event.text_bytes, 2u);
  EXPECT_EQ(event.output_tokens, -1);
  event = read_event(R"({"error":null,"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}})");
  EXPECT_TRUE(event.valid && !event.failed);
  EXPECT_EQ(event.prompt_tokens, 3);
  EXPECT_EQ(event.output_tokens, 4);
  event = read_event(R"({"model_name":"x","text_output":"abc"})");
  EXPECT_EQ(event.text_bytes, 3u);
  event = read_event(R"({"error":"broken"})");
  EXPECT_TRUE(event.failed);
  EXPECT_EQ(event.error_text, "broken");
  EXPECT_TRUE(read_event("[DONE]").end);
  // The same words elsewhere mean nothing.
  event = read_event(R"({"x":{"choices":[{"delta":{"content":"ab"}}]},"content":"y","timings":[{"text":"z"}]})");
  EXPECT_EQ(event.text_bytes, 0u);
  for (const char* text : {"", "1", "null", "{", "{}x", "[DONE"}) EXPECT_FALSE(read_event(text).valid) << text;
  RequestFields fields;
  fields.model = "m";
  fields.prompt = "p \"q\"";
  fields.extra_json = R"({"temperature":0,"max_tokens":7})";
  EXPECT_EQ(request_body(Dialect::kOpenai, fields),
            R"({"model":"m","prompt":"p \"q\"","max_tokens":7,"stream":true,)"
            R"("stream_options":{"include_usage":true},"ignore_eos":true,"temperature":0})");
  fields.extra_json = R"({"parameters":{"temperature":0}})";
  fields.ignore_eos = false;
  EXPECT_EQ(request_body(Dialect::kKserve, fields),
            R"({"text_input":"p \"q\"","parameters":{"max_tokens":128,"stream":true,"temperature":0}})");
  EXPECT_EQ(route(Dialect::kKserve, "a/../b"), "/v2/models/a%2F..%2Fb/generate_stream");
  EXPECT_FALSE(check_extra("[1]"));
  EXPECT_EQ(model_names(R"({"data":[{"id":"a"},{"id":1},3,{"id":"b"}]})"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(model_names(R"([{"name":"c","state":"READY"}])"), std::vector<std::string>{"c"});
  EXPECT_TRUE(model_names("nonsense").empty());
}

}  // namespace
}  // namespace bolide::load
