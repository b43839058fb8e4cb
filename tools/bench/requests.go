package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/requeststore"
)

// requestsRead is how many requests the questions are asked of.
const requestsRead = 200_000

// requests measures how fast observations become requests, and what the questions about many requests take
// over the event store's process.
func requests(binary, dir string) ([]row, error) {
	const settled = 50_000
	began := cpuSeconds()
	now := time.Now().UnixNano()
	s := request.NewSettler(request.SettlerOptions{}, now)
	rows := 0
	for i := range settled {
		at := now + int64(i)*int64(time.Millisecond)
		for _, o := range observationsOf(i, at) {
			s.Add(at, o)
		}
		for _, d := range s.Due(at, 100) {
			rows += len(s.Settle(at, d, nil))
		}
	}
	for _, d := range s.Due(now+int64(time.Hour), settled) {
		rows += len(s.Settle(now, d, nil))
	}
	if rows != settled {
		return nil, fmt.Errorf("%d requests became %d rows", settled, rows)
	}
	out := []row{{"requests settled of 3 observations each, one core", fmt.Sprintf("%.0f /s", settled/(cpuSeconds()-began)), "", ""}}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := eventstore.Open(ctx, eventstore.Options{Dir: filepath.Join(dir, "requests"), Command: func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, binary, append([]string{"events-child"}, args...)...)
	}})
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- events.Run(ctx) }()
	defer func() {
		cancel()
		<-done
		_ = events.Close()
	}()
	var batch []event.Row
	base := time.Now().Add(-time.Hour).UnixNano()
	for i := range requestsRead {
		m := request.Merge(observationsOf(i, base+int64(i)*int64(10*time.Millisecond)))
		m.ID, m.Revision, m.Time = fmt.Sprintf("r%020x", i), 1, m.Start
		var r event.Row
		m.Row(&r)
		r.Fields = slices.Clone(r.Fields)
		if batch = append(batch, r); len(batch) == 5000 {
			if err := events.Append(ctx, batch); err != nil {
				return nil, err
			}
			batch = batch[:0]
		}
	}
	if err := events.Flush(ctx); err != nil {
		return nil, err
	}
	table, err := requeststore.New(events, requeststore.Options{})
	if err != nil {
		return nil, err
	}
	for _, ask := range []struct {
		what string
		ask  func() (int64, error)
	}{
		{"of %d k requests: those of a step with TTFT above 2 s", func() (int64, error) {
			_, err := table.List(ctx, requeststore.Query{Filter: "step:40 ttft>2s"}, requeststore.Order{By: "ttft", Desc: true}, 100, "")
			return requestsRead, err
		}},
		{"  the 100 slowest of all", func() (int64, error) {
			p, err := table.List(ctx, requeststore.Query{}, requeststore.Order{By: "ttft", Desc: true}, 100, "")
			return p.Total, err
		}},
		{"  exact percentiles and goodput by engine", func() (int64, error) {
			sum, err := table.Summarize(ctx, requeststore.Query{}, "engine", requeststore.Targets{TTFT: 2, ITL: 0.05})
			if err != nil {
				return 0, err
			}
			return sum.Groups[0].Count, nil
		}},
		{"  a scatter of 5,000 of them", func() (int64, error) {
			p, err := table.Points(ctx, requeststore.Query{}, "start", "ttft", "outcome", 5000)
			return p.Total, err
		}},
	} {
		at := time.Now()
		n, err := ask.ask()
		if err != nil {
			return nil, err
		}
		if n != requestsRead {
			return nil, fmt.Errorf("%d of %d requests were found", n, requestsRead)
		}
		what := ask.what
		if what[0] != ' ' {
			what = fmt.Sprintf(what, requestsRead/1000)
		}
		out = append(out, row{what, fmt.Sprintf("%.0f ms", float64(time.Since(at).Microseconds())/1e3), "", ""})
	}
	return out, nil
}

// observationsOf is what an engine's spans, its log and a dump say of request i.
func observationsOf(i int, at int64) []request.Observation {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	known := func(v float64) request.Value { return request.Value{V: v, State: request.Known} }
	ttft := 0.05 + rng.ExpFloat64()
	e2e := ttft + 5*rng.ExpFloat64()
	end := at + int64(e2e*1e9)
	engine := fmt.Sprintf("10.0.%d.%d:30000", i%64/8, i%8)
	rid := request.Alias{Kind: request.RID, ID: fmt.Sprintf("%032x", i)}
	return []request.Observation{
		{Source: request.FromTrace, Role: "unified", Service: "sglang", Engine: engine, Model: "qwen3", Start: at, Finish: end, Final: true, Outcome: request.Finished, FinishReason: "stop",
			TTFT: known(ttft), ITL: known(0.01 + rng.Float64()/50), E2E: known(e2e), Queue: known(ttft / 3), Prefill: known(ttft / 2), Decode: known(e2e - ttft), CompletionTokens: known(float64(1 + rng.IntN(4000))),
			Aliases: []request.Alias{rid, {Kind: request.TraceID, ID: fmt.Sprintf("%032x", i+1<<40)}}, Spans: 9, SpansKept: "sampled_away", SpansReason: "ratio"},
		{Source: request.FromLog, TimeRank: 1, Engine: engine, Start: end, Finish: end, Final: true, E2E: known(e2e), PromptTokens: known(1000), Aliases: []request.Alias{rid}},
		{Source: request.FromDump, Start: at - 2e6, Finish: end + 3e6, Final: true, FinishReason: "stop", E2E: known(e2e), Run: "exp1", Kind: "train", Step: known(float64(i / 2000)), Sample: known(float64(i % 2000)),
			Aliases: []request.Alias{rid, {Kind: request.SampleSpan, ID: fmt.Sprintf("exp1/train/%d/%d/s", i/2000, i%2000)}}},
	}
}

// cpuSeconds is how long this process has computed.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
