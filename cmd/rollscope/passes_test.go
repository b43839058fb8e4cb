package main

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/sim/passes"
)

// Forward passes from an engine's sockets to series, rows, a burst and a capacity; the same data directory has
// them after a kill, and a replay of it shows them.
func TestServeForwardPasses(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	began := make(chan []string, 1)
	wg.Go(func() {
		if _, err := passes.Run(ctx, passes.Options{Endpoint: "tcp://127.0.0.1:0", Ranks: 2, Rate: 50, Worker: "7587888160958627365", Begun: func(at []string) { began <- at }}); err != nil {
			t.Error(err)
		}
	})
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "rollscope.yaml")
	if err := os.WriteFile(file, []byte("rollscope:\n  planner: {optimization_target: sla, ttft_ms: 250}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--config.file", file, "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0", "--traces.otlp-grpc", "off", "--traces.otlp-http", "off", "--traces.tempo", "off"}
	for _, at := range <-began {
		args = append(args, "--fpm", at)
	}
	const ours = "/api/rollscope/v1"
	status := func(base string) (s api.ForwardPasses) {
		var m api.Envelope[api.ForwardPasses]
		get(t, base, ours+"/passes", nil, &m)
		return m.Data
	}
	rows := func(base string) api.PassColumns {
		var m api.Envelope[api.PassColumns]
		get(t, base, ours+"/passes/rows", url.Values{"limit": {"20000"}}, &m)
		return m.Data
	}
	p := start(t, args...)
	eventually(t, "both ranks are heard", func() bool {
		s := status(p.url)
		return len(s.Engines) == 1 && len(s.Engines[0].Ranks) == 2 && s.Engines[0].WorkerHex == "694d98147d54be25" && s.Rows.Stored > 200
	})
	resp, err := http.PostForm(p.url+ours+"/passes/bursts", url.Values{"around": {"2s"}, "reason": {"a test"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("a burst: %s", resp.Status)
	}
	eventually(t, "the burst has rows", func() bool { b := status(p.url).Bursts; return len(b) == 1 && b[0].Rows > 100 })
	var capacity api.Envelope[api.PassCapacity]
	eventually(t, "a model has learned", func() bool {
		get(t, p.url, ours+"/passes/capacity", url.Values{"isl": {"500"}, "osl": {"200"}}, &capacity)
		return capacity.Data.RPS != nil && *capacity.Data.RPS > 0
	})
	eventually(t, "the histograms are in the store", func() bool {
		// What is written at one moment is read one after the other: a pass may come between.
		v := query(t, p.url, `abs(sum(rollscope_fpm_iteration_seconds_count) - sum(rollscope_fpm_passes_total)) < 50 and sum(rollscope_fpm_passes_total) > 100`, time.Time{})
		return len(v.Data.Result) == 1
	})
	eventually(t, "each pass is in a histogram", func() bool {
		resp, err := http.Get(p.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		sums := map[string]float64{}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, rest, _ := strings.Cut(lines.Text(), "{")
			if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
				sums[name] += v
			}
		}
		return sums["rollscope_fpm_iteration_seconds_count"] == sums["rollscope_fpm_passes_total"] && sums["rollscope_fpm_passes_total"] > 100
	})
	before := rows(p.url)
	if len(before.Rank) < 200 || len(before.Ranks) != 2 {
		t.Fatalf("%d rows of %d ranks", len(before.Rank), len(before.Ranks))
	}
	p.kill()

	p = start(t, args...)
	eventually(t, "what was stored before the kill is there", func() bool {
		have := map[[2]float64]bool{}
		now := rows(p.url)
		for i := range now.Rank {
			have[[2]float64{float64(now.Ranks[now.Rank[i]].Rank), now.Time[i]}] = true
		}
		for i := range before.Rank {
			if !have[[2]float64{float64(before.Ranks[before.Rank[i]].Rank), before.Time[i]}] {
				return false
			}
		}
		return len(have) > len(before.Rank)
	})
	if b := status(p.url).Bursts; len(b) != 1 || b[0].Reason != "a test" || !b[0].Done {
		t.Errorf("the list of bursts after a kill: %+v", b)
	}
	p.stop()

	r := start(t, "replay", dir, "--web.listen-address", "127.0.0.1:0")
	s := status(r.url)
	if s.Enabled || len(s.Engines) != 1 || len(s.Bursts) != 1 {
		t.Errorf("the recording: %+v", s)
	}
	if got := rows(r.url); len(got.Rank) < len(before.Rank) {
		t.Errorf("the recording has %d rows, before there were %d", len(got.Rank), len(before.Rank))
	}
	var then api.Envelope[api.PassAdvice]
	get(t, r.url, ours+"/passes/advice", nil, &then)
	if d := then.Data.Deployments; len(d) != 1 || d[0].Target != "sla" || d[0].TTFT != 0.25 || !strings.HasPrefix(d[0].SettingsFrom, "the recording: the configuration, in force since ") {
		t.Errorf("the recording advises with other settings than the recorder did: %+v", d)
	}
	get(t, r.url, ours+"/passes/capacity", url.Values{"isl": {"500"}, "osl": {"200"}}, &capacity)
	if c := capacity.Data; c.TTFT != 0.25 || c.SettingsFrom != then.Data.Deployments[0].SettingsFrom || c.NamespaceFrom != "it is the only one" {
		t.Errorf("the recording's capacity: %+v", c)
	}
	if code := get(t, r.url, ours+"/passes/live", nil, nil); code != http.StatusNotFound {
		t.Errorf("passes of a recording's present: %d", code)
	}
	r.stop()
}
