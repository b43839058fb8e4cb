package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/requeststore"
)

// requestsIn stores made requests in a data directory and returns the id of the slowest one. Request i of
// 40 has a TTFT of i quarters of a second, and is of step 40 when i is even; the last failed.
func requestsIn(t *testing.T, dir string, from time.Time) (slowest string) {
	t.Helper()
	events, err := eventstore.Open(t.Context(), eventstore.Options{Dir: filepath.Join(dir, "rollscope"), MinFreeBytes: -1, Retention: 10 * 365 * 24 * time.Hour,
		Command: func(ctx context.Context, args ...string) *exec.Cmd {
			return exec.CommandContext(ctx, os.Args[0], append([]string{app.ChildCommand}, args...)...)
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- events.Run(ctx) }()
	table, err := requeststore.New(events, requeststore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	known := func(v float64) request.Value { return request.Value{V: v, State: request.Known} }
	var obs []request.Observation
	for i := range 40 {
		at := from.Add(time.Duration(i) * time.Second).UnixNano()
		rid := request.Alias{Kind: request.RID, ID: fmt.Sprintf("rid-%02d", i)}
		o := request.Observation{Source: request.FromTrace, Role: "unified", Engine: fmt.Sprintf("10.0.0.%d:30000", i%4), Service: "sglang", Model: "qwen3", Start: at, Finish: at + int64(i+1)*1e9, Final: true,
			Outcome: request.Finished, FinishReason: "stop", TTFT: known(float64(i) / 4), E2E: known(float64(i + 1)), ITL: known(0.02), CompletionTokens: known(100), Aliases: []request.Alias{rid}, Spans: 9, SpansKept: "kept"}
		if i == 39 {
			o.Outcome, o.FinishReason, o.Error = request.ErrorOutcome, "", "out of\x1b[31m memory"
		}
		obs = append(obs, o, request.Observation{Source: request.FromDump, Start: at - 1e6, Finish: o.Finish, Final: true, E2E: known(float64(i + 1)), Run: "exp1", Kind: "train", Step: known(float64(40 + i%2)), Sample: known(float64(i)),
			Aliases: []request.Alias{rid, {Kind: request.SampleSpan, ID: fmt.Sprintf("exp1/train/%d/%d/s", 40+i%2, i)}}})
	}
	if err := table.Observe(ctx, obs); err != nil {
		t.Fatal(err)
	}
	if err := table.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := table.List(ctx, requeststore.Query{}, requeststore.Order{By: "e2e", Desc: true}, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := events.Close(); err != nil {
		t.Fatal(err)
	}
	return p.Requests[0].ID
}

func TestRequestsFromAShell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	from := time.Date(2026, 5, 28, 11, 0, 0, 0, time.UTC)
	if _, errs, code := runCLI(t, "sim", "record", dir, "--fleet", "demo", "--for", "1m", "--from", from.Format(time.RFC3339)); code != 0 {
		t.Fatal(errs)
	}
	// Without events it says what is missing.
	if _, errs, code := runCLI(t, "requests", "--dir", dir); code != 2 || !strings.Contains(errs, "keeps no requests") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	slowest := requestsIn(t, dir, from)
	// Of a directory, and of a server that shows it.
	p := start(t, "replay", dir, "--web.listen-address", "127.0.0.1:0")
	for _, source := range [][]string{{"--dir", dir}, {"--server", p.url}} {
		ask := func(code int, args ...string) (out, errs string) {
			t.Helper()
			out, errs, got := runCLI(t, append(append([]string{"requests"}, source...), args...)...)
			if got != code {
				t.Fatalf("%v: exit code %d\n%s%s", args, got, out, errs)
			}
			return out, errs
		}
		column := func(out string, n int) string {
			var cells []string
			for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
				cells = append(cells, strings.Fields(line)[n])
			}
			return strings.Join(cells, " ")
		}
		// All requests of step 40 with a TTFT above 5 s: slowest first, then by engine.
		out, _ := ask(0, "step:40", "ttft>5s")
		if got := column(out, 1); got != "TTFT 9.5 9 8.5 8 7.5 7 6.5 6 5.5" {
			t.Errorf("TTFT is %s\n%s", got, out)
		}
		if !strings.Contains(out, "exp1/train/40/38") || !strings.Contains(out, "rid-38") || !strings.Contains(out, "dump,trace") {
			t.Errorf("%s", out)
		}
		out, _ = ask(0, "step:40 ttft>5s", "--by", "engine", "--ttft", "8s")
		if got := column(out, 0) + " / " + column(out, 1); got != "ENGINE all 10.0.0.2:30000 10.0.0.0:30000 / COUNT 9 5 4" {
			t.Errorf("%s\n%s", got, out)
		}
		if !strings.Contains(out, "66.7 %") || strings.Contains(out, "good/s") { // a rate over what time?
			t.Errorf("%s", out)
		}
		if source[0] == "--dir" { // the same code answers
			continue
		}
		out, errs := ask(0, "--limit", "3", "--sort", "ttft", "--ascending")
		if got := column(out, 1); got != "TTFT 0 0.25 0.5" || !strings.Contains(errs, "3 of 40 requests in the whole record") {
			t.Errorf("%s\n%s%s", got, out, errs)
		}
		var list api.Requests
		out, _ = ask(0, "--json", "--limit", "1001", "--", "-outcome:ok")
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Requests) != 1 || list.Requests[0].ID != slowest || *list.Total != 1 {
			t.Errorf("%v: %s", err, out)
		}
		var sum api.RequestSummary
		out, _ = ask(0, "--json", "--by", "step", "--itl", "50ms")
		if err := json.Unmarshal([]byte(out), &sum); err != nil || len(sum.Groups) != 3 || sum.Groups[0].Count != 40 || *sum.Groups[0].Good != 39 {
			t.Errorf("%v: %s", err, out)
		}
		out, _ = ask(0, "--id", slowest)
		for _, want := range []string{slowest, "rid rid-39", "ttft", "9.75", "step", "dump", "seen by trace/unified", "out of�[31m memory"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in\n%s", want, out)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Error("an error's text drives the terminal")
		}
		if out, errs := ask(0, "step:39"); out != "" || !strings.Contains(errs, `no requests that "step:39" lets through in the whole record`) {
			t.Errorf("%s%s", out, errs)
		}
		if _, errs := ask(0, "--since", "5m", "step:39"); !strings.Contains(errs, "from 2026-05-28T10:56:00Z to 2026-05-28T11:01:00Z; --since looks further back") {
			t.Errorf("%s", errs)
		}
		for _, bad := range []struct{ args, want string }{
			{"ttft>fast", "at character 6 of the filter"},
			{"colour:red", "there is no field"},
			{"--id nobody", "no such request"},
			{"--sort engine", "there is no field"},
			{"--by rid", "engine"},
			{"--ttft -3s", "ttft"},
			{"--limit 0", "--limit"},
			{"--id x step:40", "leave the filter out"},
		} {
			if _, errs := ask(2, strings.Fields(bad.args)...); !strings.Contains(errs, bad.want) {
				t.Errorf("%s: %s", bad.args, errs)
			}
		}
	}
	p.stop()
	if _, errs, code := runCLI(t, "requests", "--server", p.url); code != 3 || !strings.Contains(errs, "no answer from") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
