package enginelog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/request"
)

// TestRecords: golden records of every log in testdata, one a line with all that was read.
func TestRecords(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.log")
	if err != nil || len(files) == 0 {
		t.Fatal("no logs in testdata", err)
	}
	for _, path := range files {
		var out bytes.Buffer
		for _, r := range readAll(t, path, Options{Reference: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixNano()}) {
			describe(&out, &r)
		}
		golden(t, strings.TrimSuffix(path, ".log")+".records.txt", out.Bytes())
	}
}

func describe(out *bytes.Buffer, r *Record) {
	fmt.Fprintf(out, "%s format=%s class=%s level=%s repeat=%d marks=%s", stampOf(r.Time), r.Format, r.Class, r.Level, r.Repeat, r.Marks)
	for _, f := range r.Fields {
		fmt.Fprintf(out, " %s=%q", f.Name, f.Value)
	}
	fmt.Fprintf(out, "\n    %s\n", shorten(fmt.Sprintf("%q", r.Line), 110))
	if r.Request != nil {
		out.WriteString("    request " + observation(r.Request) + "\n")
	}
	if s := r.Step; s != nil {
		fmt.Fprintf(out, "    step %s %d on %q cut=%v:", s.Group, s.Step, s.Axis, s.Cut)
		for _, m := range s.Metrics {
			fmt.Fprintf(out, " %s=%v", m.Key, m.Value)
		}
		for _, x := range s.Texts {
			fmt.Fprintf(out, " %s=%q", x.Key, x.Value)
		}
		out.WriteString("\n")
	}
}

// observation writes what is said, and nothing else.
func observation(o *request.Observation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "from=%s start=%s rank=%d finish=%s final=%v", o.Source, stampOf(o.Start), o.TimeRank, stampOf(o.Finish), o.Final)
	for _, a := range o.Aliases {
		fmt.Fprintf(&b, " %s=%s", a.Kind, a.ID)
	}
	for _, f := range []struct{ n, v string }{{"role", o.Role}, {"model", o.Model}, {"outcome", string(o.Outcome)}, {"reason", o.FinishReason}, {"error", o.Error}, {"weights", o.WeightVersion}} {
		if f.v != "" {
			fmt.Fprintf(&b, " %s=%s", f.n, f.v)
		}
	}
	val := func(name string, v request.Value) {
		switch v.State {
		case request.Known:
			fmt.Fprintf(&b, " %s=%.6g", name, v.V)
		case request.Invalid:
			fmt.Fprintf(&b, " %s=!%.6g", name, v.V)
		}
	}
	val("ttft", o.TTFT)
	val("itl", o.ITL)
	val("e2e", o.E2E)
	val("queue", o.Queue)
	val("prefill", o.Prefill)
	val("transfer", o.Transfer)
	val("decode", o.Decode)
	for p, v := range o.Phases {
		val(fmt.Sprintf("phase%d", p), v)
	}
	val("prompt", o.PromptTokens)
	val("completion", o.CompletionTokens)
	val("cached", o.CachedTokens)
	val("throughput", o.DecodeThroughput)
	val("speed", o.TransferSpeed)
	val("size", o.TransferSize)
	val("retries", o.Retries)
	val("retractions", o.Retractions)
	if o.Streaming != nil {
		fmt.Fprintf(&b, " streaming=%v", *o.Streaming)
	}
	if len(o.Flags) > 0 {
		fmt.Fprintf(&b, " flags=%s", strings.Join(o.Flags, ","))
	}
	return b.String()
}

// captures are the lines that real programs wrote, kept outside the repository.
const captures = "../../../shared/fixtures/captures"

// TestCaptures: every line of the real captures has the format and class that the grammars' tables name.
func TestCaptures(t *testing.T) {
	if _, err := os.Stat(captures); err != nil {
		t.Skip("the captures are not here")
	}
	want := map[string]string{
		"sglang/logs/01_issue11648_pd_prefill_v0.5.2era.log":           "sglang.prefill*4",
		"sglang/logs/02_issue14972_decode_v0.5.6era.log":               "sglang.decode*3",
		"sglang/logs/03_issue26248_collapse_abbreviated.log":           "sglang.decode*4",
		"sglang/logs/04_issue8335_req_time_stats_bogus.log":            "sglang.req_time_stats*2",
		"sglang/logs/05_retraction_v0.5.18_2026-09-13.log":             "sglang.decode*4 sglang.retract/preempt*4 sglang.decode*1 sglang.retract/preempt*1 sglang.decode*1",
		"sglang/logs/06_ascend_faq_pd_decode_npu_graph_2026-04-07.log": "sglang.decode*1 sglang.pd_failure/error*1 uvicorn.access*2 cpp.terminate/error*1 process.crash*2",
		"sglang/logs/07_ray_prefixed_decode_2025-10.log":               "sglang.decode*3",
		"sglang/logs/09_pr25960_truncated_lines_2026-05-28.log":        "sglang.decode*1 sglang.prefill*1 uvicorn.access*1",
		"sglang/logs/10_issue3932_nccl_watchdog.log":                   "nccl.watchdog/hang*1 nccl.watchdog*2",
		"sglang/logs/11_pr11177_log_requests_finish.log":               "sglang.request_log*1",
		"sglang/logs/12_issue12621_router_startup_2025-11-04.log":      "router.startup/startup*1 router.text*3",
		"sglang/logs/13_docs_tuning_startup_and_decode.log":            "sglang.decode*1 sglang.retract/preempt*1 sglang.startup/startup*1",
		"sglang/logs/14_srt_slurm_fixture_formats.log":                 "sglang.prefill*3 sglang.decode*1",
		"dynamo/logs_dynamo.jsonl":                                     "dynamo.jsonl*6",
		"dynamo/logs_dynamo.txt":                                       "dynamo.text*5",
		"dynamo/logs_fpm_lines.txt":                                    "dynamo.fpm*3",
		"dynamo/sglang_request_log.jsonl":                              "sglang.request_log*1",
		"dynamo/planner_audit.log":                                     "dynamo.audit*3",
	}
	for path, w := range want {
		var got []string
		last, n := "", 0
		flush := func() {
			if n > 0 {
				got = append(got, fmt.Sprintf("%s*%d", last, n))
			}
		}
		for _, r := range readAll(t, filepath.Join(captures, path), Options{}) {
			k := r.Format
			if r.Class != None {
				k += "/" + string(r.Class)
			}
			if k != last {
				flush()
				last, n = k, 0
			}
			n++
		}
		flush()
		if s := strings.Join(got, " "); s != w {
			t.Errorf("%s:\n%s\nwant\n%s", path, s, w)
		}
	}
	// The start: its stages in their order, the rest text of the engine.
	var stages []string
	for _, r := range readAll(t, filepath.Join(captures, "sglang/logs/08_startup_2026-05-24.log"), Options{}) {
		if r.Class == Startup {
			stages = append(stages, r.Get("stage"))
		} else if r.Class != None {
			t.Errorf("class %s of %q", r.Class, r.Line)
		}
	}
	const order = "server_args distributed distributed load_weight_begin load_weight_end kv_allocated memory_pool_end graph_begin graph_end " +
		"piecewise_graph_begin piecewise_graph_end tree_cache limits http_process http_waiting http_complete http_listening ready"
	if s := strings.Join(stages, " "); s != order {
		t.Errorf("stages of the start:\n%s\nwant\n%s", s, order)
	}
}
