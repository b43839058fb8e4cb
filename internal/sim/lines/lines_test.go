package lines

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/enginelog"
	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// life runs a fleet and returns its lines and calls.
func life(t *testing.T, cfg sim.Config, o Options, d time.Duration) (out []Line, calls []sim.Call) {
	t.Helper()
	f, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := New(o)
	r.Begin(f.Roll())
	f.Watch(r.Watch())
	f.Watch(sim.Watch{Call: func(c sim.Call) { calls = append(calls, c) }})
	for at := f.Start(); at.Before(f.Start().Add(d)); {
		at = at.Add(time.Second)
		f.Advance(at)
		out = append(out, r.Due(at)...)
	}
	return out, calls
}

func faulty() sim.Config {
	cfg := sim.Demo()
	for _, s := range []string{"engine_hang@30s+100s:rollout-0", "engine_restart@50s+20s:chat-0", "engine_restart@80s+20s:vllm-0", "engine_restart@90s+20s:dynamo-worker-0", "transfer_slow@20s+2m:prefill-0"} {
		f, err := sim.ParseFault(s)
		if err != nil {
			panic(err)
		}
		cfg.Faults = append(cfg.Faults, f)
	}
	return cfg
}

// TestLinesAreRead: the grammars read every line, find the classes of what went wrong and nothing else, and
// say of each request what the model says.
func TestLinesAreRead(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	got, calls := life(t, faulty(), Options{Zone: zone, Millis: true}, 4*time.Minute)
	parsers := map[string]*enginelog.Parser{}
	last := map[string]time.Time{}
	classes := map[string]map[enginelog.Class]int{}
	formats := map[string]int{}
	type key struct{ member, rid string }
	seen := map[key][]*request.Observation{}
	for _, l := range got {
		if l.Time.Before(last[l.Member]) {
			t.Fatalf("%s: the time goes back at %q", l.Member, l.Text)
		}
		last[l.Member] = l.Time
		p := parsers[l.Member]
		if p == nil {
			p = enginelog.NewParser(enginelog.Options{Zone: zone, Engine: l.Member, Reference: l.Time.UnixNano()})
			parsers[l.Member] = p
			classes[l.Member] = map[enginelog.Class]int{}
		}
		rec, ok := p.Line([]byte(l.Text), 0)
		if !ok {
			if l.Text != "" {
				t.Errorf("%s: not a record: %q", l.Member, l.Text)
			}
			continue
		}
		formats[rec.Format]++
		if rec.Format == "" {
			t.Errorf("%s: no grammar reads %q", l.Member, l.Text)
		}
		if m := rec.Marks &^ (enginelog.TimeAssumed | enginelog.DateAssumed | enginelog.Invalid); m != 0 {
			t.Errorf("%s: marks %s of %q", l.Member, m, l.Text)
		}
		if rec.Marks&enginelog.TimeAssumed == 0 && math.Abs(float64(rec.Time-l.Time.UnixNano())) >= 1e9 {
			t.Errorf("%s: %q is at %s, written at %s", l.Member, l.Text, time.Unix(0, rec.Time).UTC(), l.Time.UTC())
		}
		if rec.Class != enginelog.None {
			classes[l.Member][rec.Class]++
		}
		if o := rec.Request; o != nil {
			if !slices.ContainsFunc(o.Aliases, func(a request.Alias) bool { return a.Kind == request.RID || a.Kind == request.TraceID }) {
				t.Errorf("%s: a request without a name of its own: %q", l.Member, l.Text)
			}
			for _, a := range o.Aliases {
				if a.Kind == request.RID || a.Kind == request.TraceID {
					k := key{l.Member, a.ID}
					seen[k] = append(seen[k], o)
				}
			}
		}
	}
	for _, f := range []string{"sglang.decode", "sglang.prefill", "sglang.req_time_stats", "sglang.request_log", "sglang.retract", "uvicorn.access", "vllm.stats", "vllm.abort",
		"dynamo.jsonl", "router.text", "router.startup", "sglang.startup", "vllm.startup", "sglang.health", "sglang.watchdog", "torch.oom", "sglang.exception", "sglang.weights"} {
		if formats[f] == 0 {
			t.Errorf("no line of %s in %v", f, formats)
		}
	}
	for member, want := range map[string][]enginelog.Class{
		"chat-0":          {enginelog.Preempt, enginelog.OOM, enginelog.Error, enginelog.Startup},
		"rollout-0":       {enginelog.Hang, enginelog.Startup},
		"vllm-0":          {enginelog.OOM, enginelog.Startup},
		"dynamo-worker-0": {enginelog.OOM, enginelog.Startup},
		"router-0":        {enginelog.Error},
	} {
		for _, c := range want {
			if classes[member][c] == 0 {
				t.Errorf("%s: no event of class %q: %v", member, c, classes[member])
			}
		}
	}
	for member, c := range classes {
		if strings.HasPrefix(member, "decode") || member == "prefill-0" {
			if c[enginelog.OOM]+c[enginelog.Hang]+c[enginelog.Preempt] != 0 {
				t.Errorf("%s: %v", member, c)
			}
		}
	}
	if n := classes["chat-0"][enginelog.OOM]; n != 1 {
		t.Errorf("one crash for want of memory counts %d times", n)
	}
	// What is said of each request.
	told := 0
	for _, c := range calls {
		obs := seen[key{c.Member, c.RID}]
		if c.Kind != sim.SGLang || c.Started.IsZero() || c.Outcome == sim.Failed {
			continue
		}
		if len(obs) == 0 {
			if c.Ended.Before(got[len(got)-1].Time) {
				t.Errorf("nothing is said of %s on %s", c.RID, c.Member)
			}
			continue
		}
		told++
		for _, o := range obs {
			near := func(what string, v request.Value, want float64) {
				if x, ok := v.Known(); ok && math.Abs(x-want) > 0.0051 {
					t.Errorf("%s on %s: %s is %v, want %v", c.RID, c.Member, what, x, want)
				}
			}
			near("prompt", o.PromptTokens, float64(c.Prompt))
			near("output", o.CompletionTokens, float64(c.Output))
			near("cached", o.CachedTokens, float64(c.Cached))
			near("e2e", o.E2E, c.Ended.Sub(c.Received).Seconds())
			if len(c.Retracted) == 0 {
				near("queue", o.Queue, c.Started.Sub(c.Queued).Seconds())
			}
			near("transfer speed", o.TransferSpeed, c.KVBytes/1e9/max(c.Ended.Sub(c.Sent).Seconds(), 1e-9))
		}
	}
	if told < 200 {
		t.Errorf("only %d requests are told of", told)
	}
}

// TestSame: the same fleet makes the same lines; a copy has other requests.
func TestSame(t *testing.T) {
	a, _ := life(t, sim.Uniform(2), Options{}, 20*time.Second)
	b, _ := life(t, sim.Uniform(2), Options{}, 20*time.Second)
	c, _ := life(t, sim.Uniform(2), Options{Copy: 1}, 20*time.Second)
	if len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("%d and %d lines that differ", len(a), len(b))
	}
	rids := func(l []Line) map[string]bool {
		out := map[string]bool{}
		for _, x := range l {
			if _, rest, ok := strings.Cut(x.Text, "rid="); ok {
				id, _, _ := strings.Cut(rest, ",")
				out[id] = true
			}
		}
		return out
	}
	one, two := rids(a), rids(c)
	if len(one) == 0 || len(one) != len(two) {
		t.Errorf("%d and %d requests", len(one), len(two))
	}
	for id := range one {
		if two[id] {
			t.Errorf("the copy has request %s too", id)
		}
	}
}

// TestReleases: each generation of SGLang's lines is read whole.
func TestReleases(t *testing.T) {
	for _, version := range []string{"0.5.5", "0.5.7", "0.5.9", "0.5.10", "0.5.12", "0.5.15", "0.5.18"} {
		cfg := sim.Demo()
		cfg.Faults = nil
		for i := range cfg.Members {
			if cfg.Members[i].Kind == sim.SGLang {
				cfg.Members[i].Version = version
			}
		}
		got, _ := life(t, cfg, Options{}, 40*time.Second)
		p := map[string]*enginelog.Parser{}
		n := 0
		for _, l := range got {
			if p[l.Member] == nil {
				p[l.Member] = enginelog.NewParser(enginelog.Options{Zone: time.UTC})
			}
			rec, ok := p[l.Member].Line([]byte(l.Text), 0)
			if ok && strings.HasPrefix(rec.Format, "sglang.") {
				n++
				if rec.Marks&enginelog.Cut != 0 {
					t.Errorf("%s: cut: %q", version, l.Text)
				}
			}
		}
		if n < 100 {
			t.Errorf("%s: %d lines", version, n)
		}
	}
}

// TestFiles: rotation keeps every line, and the runtimes' forms are read back.
func TestFiles(t *testing.T) {
	got, _ := life(t, sim.Demo(), Options{}, 30*time.Second)
	got = append(got, Line{got[len(got)-1].Time, "chat-0", strings.Repeat("é", 30_000)})
	for _, form := range Forms() {
		dir := t.TempDir()
		f, err := Open(dir, FileOptions{Form: form, MaxBytes: 20_000, Keep: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(got); i += 100 {
			if err := f.Write(got[i:min(i+100, len(got))]); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		want, n := 0, 0
		for _, l := range got {
			if l.Text != "" {
				want++
			}
		}
		parts := 0
		for _, name := range []string{"chat-0", "rollout-0", "prefill-0", "decode-0", "decode-1", "vllm-0", "dynamo-worker-0", "dynamo-frontend-0", "router-0"} {
			p := enginelog.NewParser(enginelog.Options{Zone: time.UTC})
			for i := 1000; i >= 0; i-- {
				path := f.Path(name)
				if i > 0 {
					path += "." + itoa(i)
				}
				b, err := os.ReadFile(path)
				if err != nil {
					continue
				}
				parts++
				for line := range bytes.Lines(b) {
					rec, ok := p.Line(bytes.TrimSuffix(line, []byte("\n")), 0)
					if ok && len(rec.Line) > 0 {
						n++
					}
				}
			}
		}
		if n != want || parts < 20 {
			t.Errorf("%s: %d lines of %d in %d files", form, n, want, parts)
		}
		if lines, _ := f.Written(); lines != int64(len(got)) {
			t.Errorf("%s: %d written", form, lines)
		}
	}
	if _, err := Open(t.TempDir(), FileOptions{Form: "xml"}); err == nil {
		t.Error("a form that nobody writes is taken")
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// TestLive: a fleet that is served writes files that the follower reads under the engines' addresses.
func TestLive(t *testing.T) {
	cfg := sim.Demo()
	cfg.Start = time.Now()
	fleet, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	running, err := sim.Serve(ctx, fleet, sim.Options{Speed: 4})
	if err != nil {
		t.Fatal(err)
	}
	files, err := Open(t.TempDir(), FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := Live(ctx, running, Options{}, files, slog.New(slog.DiscardHandler))
	config := string(Config(files, running.Targets()))
	if !strings.HasPrefix(config, "  logs:\n    - {path: ") || strings.Count(config, "path:") != 9 || strings.Count(config, "engine:") != 7 {
		t.Errorf("config:\n%s", config)
	}
	var sources []enginelog.Source
	addr := ""
	for _, tg := range running.Targets() {
		if tg.Member == "chat-0" {
			addr = tg.Addr
			sources = append(sources, enginelog.Source{Path: files.Path(tg.Member), Engine: tg.Addr, Zone: time.UTC})
		}
	}
	enough := make(chan struct{})
	n := 0
	follow, end := context.WithCancel(t.Context())
	defer end()
	go func() {
		select {
		case <-enough:
		case <-time.After(time.Minute):
			t.Error("the lines never came")
		}
		end()
	}()
	err = enginelog.Follow(follow, enginelog.FollowOptions{Sources: sources, Poll: 10 * time.Millisecond, Rescan: 20 * time.Millisecond,
		Sink: func(_ context.Context, rows []event.Row, _ []request.Observation) error {
			for _, r := range rows {
				if r.Engine != addr {
					t.Errorf("a row of engine %q", r.Engine)
				}
			}
			if n += len(rows); n >= 25 && n-len(rows) < 25 {
				close(enough)
			}
			return nil
		}})
	if err != nil {
		t.Error(err)
	}
	stop()
	running.Wait()
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
}

// TestRun: the fleet is multiplied for a rate, and what is not possible is said.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 9, 1, 9, 0, 0, 0, time.UTC)
	o := RunOptions{Fleet: sim.Uniform(2), Files: f, Rate: 100, For: 20 * time.Second, Now: func() time.Time { return now },
		After: func(d time.Duration) <-chan time.Time {
			now = now.Add(d)
			c := make(chan time.Time, 1)
			c <- now
			return c
		}}
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	copies, err := filepath.Glob(filepath.Join(dir, "*-copy*.log"))
	if err != nil || res.Copies < 2 || len(copies) != 2*(res.Copies-1) || res.Lines == 0 || res.Natural <= 0 {
		t.Errorf("%+v, %d files of copies, %v", res, len(copies), err)
	}
	for _, rate := range []float64{-1, math.NaN(), 1e12} {
		o.Rate = rate
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("a rate of %v is taken", rate)
		}
	}
}

// BenchmarkRender is lines of the demo's fleet, the model included.
func BenchmarkRender(b *testing.B) {
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		f, err := sim.New(sim.Demo())
		if err != nil {
			b.Fatal(err)
		}
		r := New(Options{})
		f.Watch(r.Watch())
		f.Advance(f.Start().Add(time.Minute))
		r.Due(f.Now())
		n += r.Rendered()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "lines/s")
}
