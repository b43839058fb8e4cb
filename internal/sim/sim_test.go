package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func mustNew(t testing.TB, cfg Config) *Fleet {
	t.Helper()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Fleet) after(d time.Duration) time.Time { return f.Start().Add(d) }

// parsed is an exposition as Prometheus reads it: values by series, series by name, types by family.
type parsed struct {
	values map[string]float64
	series map[string][]string
	types  map[string]model.MetricType
}

func parse(t testing.TB, body []byte, contentType string) parsed {
	t.Helper()
	p, err := textparse.New(body, contentType, nil, textparse.ParserOptions{FallbackContentType: "text/plain"})
	if p == nil {
		t.Fatalf("no parser for %q: %v", contentType, err)
	}
	out := parsed{map[string]float64{}, map[string][]string{}, map[string]model.MetricType{}}
	for {
		e, err := p.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%.3000s", err, body)
		}
		switch e {
		case textparse.EntryType:
			name, typ := p.Type()
			if _, twice := out.types[string(name)]; twice {
				t.Fatalf("TYPE of %s twice", name)
			}
			out.types[string(name)] = typ
		case textparse.EntrySeries:
			_, _, v := p.Series()
			var ls promlabels.Labels
			p.Labels(&ls)
			key := ls.String()
			if _, twice := out.values[key]; twice {
				t.Fatalf("series twice: %s", key)
			}
			out.values[key] = v
			name := ls.Get(model.MetricNameLabel)
			out.series[name] = append(out.series[name], key)
		}
	}
}

// sum adds the values of the series of a name whose labels contain all of parts (`mode="decode"`).
func (p parsed) sum(name string, parts ...string) (total float64, series int) {
	for _, key := range p.series[name] {
		ok := true
		for _, part := range parts {
			ok = ok && strings.Contains(key, part)
		}
		if ok {
			total += p.values[key]
			series++
		}
	}
	return total, series
}

func expose(t testing.TB, f *Fleet, target string) parsed {
	t.Helper()
	body, contentType, status := f.Exposition(target)
	if status != 200 {
		t.Fatalf("%s: status %d: %s", target, status, body)
	}
	return parse(t, body, contentType)
}

// everything is all expositions of a fleet at its present time.
func everything(f *Fleet) string {
	var b strings.Builder
	for _, target := range f.Targets() {
		body, contentType, status := f.Exposition(target.Name)
		fmt.Fprintf(&b, "== %s %s %d\n%s", target.Name, contentType, status, body)
	}
	return b.String()
}

func TestSameSeedSameBytes(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skipf("the golden sums were made on amd64; %s may round the model's exponentials otherwise", runtime.GOARCH)
	}
	var got strings.Builder
	for _, preset := range []struct {
		name string
		cfg  Config
	}{{"demo", Demo()}, {"uniform:4", Uniform(4)}, {"mixed:12", Mixed(12)}} {
		f := mustNew(t, preset.cfg)
		for _, d := range []time.Duration{0, 20 * time.Second, time.Minute, 4 * time.Minute, 13 * time.Minute} {
			f.Advance(f.after(d))
			sum := sha256.Sum256([]byte(everything(f)))
			fmt.Fprintf(&got, "%s %s %s\n", preset.name, d, hex.EncodeToString(sum[:]))
		}
	}
	path := filepath.Join("testdata", "golden", "sums.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the fleets live another life than before; if that is meant, run with -update\ngot\n%swant\n%s", got.String(), want)
	}
}

func TestTheWayToATimeDoesNotMatter(t *testing.T) {
	const end = 3 * time.Minute
	at := func(steps ...time.Duration) string {
		f := mustNew(t, Demo())
		for i := 0; f.Now().Before(f.after(end)); i++ {
			next := f.Now().Add(steps[i%len(steps)])
			if next.After(f.after(end)) {
				next = f.after(end)
			}
			f.Advance(next)
		}
		return everything(f)
	}
	once := at(end)
	if at(time.Second) != once || at(130*time.Millisecond, 7*time.Second, 50*time.Millisecond) != once {
		t.Error("the state at 3 min depends on the steps by which it was reached")
	}
	other := Demo()
	other.Seed++
	f := mustNew(t, other)
	f.Advance(f.after(end))
	if everything(f) == once {
		t.Error("another seed gives the same bytes")
	}
}

// live visits every request that is in a scheduler.
func (s *scheduler) live() (out []*request) {
	s.each(func(r *request) {
		if r.at != gone {
			out = append(out, r)
		}
	})
	return out
}

func checkPool(t *testing.T, s *scheduler) {
	t.Helper()
	p := s.pool
	name := fmt.Sprintf("%s/%d at %.2f s", s.server.name, s.rank, s.now)
	if p.free() < 0 || p.private < -1e-6 || p.locked < 0 || p.evictable < 0 {
		t.Fatalf("%s: pool of %d overdrawn: private %.1f locked %d evictable %d held %d", name, p.capacity, p.private, p.locked, p.evictable, p.held)
	}
	evictable, locked := 0, 0
	for e := p.lru.next; e != &p.lru; e = e.next {
		evictable += e.tokens
	}
	for _, e := range p.byKey {
		if e.refs > 0 {
			locked += e.tokens
		}
	}
	if evictable != p.evictable || locked != p.locked {
		t.Fatalf("%s: prefixes hold %d evictable and %d locked tokens, counted are %d and %d", name, evictable, locked, p.evictable, p.locked)
	}
	private, refs := 0.0, 0
	for _, r := range s.live() {
		private += r.private
		if r.at == running {
			private += r.generated() - r.gen0
		}
		if r.holds {
			refs++
		}
	}
	if math.Abs(private-p.private) > 1+1e-6*float64(s.step) {
		t.Fatalf("%s: requests hold %.2f tokens of their own, counted are %.2f", name, private, p.private)
	}
	held := 0
	for _, e := range p.byKey {
		held += e.refs
	}
	if refs != held {
		t.Fatalf("%s: %d requests hold a prefix, prefixes count %d", name, refs, held)
	}
	hostUsed := 0
	for _, n := range p.host.tokens {
		hostUsed += n
	}
	if hostUsed != p.host.used || hostUsed > p.host.capacity {
		t.Fatalf("%s: the host holds %d tokens, counted are %d of %d", name, hostUsed, p.host.used, p.host.capacity)
	}
}

// Tokens are counted once: what forward passes emitted is what finished and running requests have.
func TestNothingIsLostOrCountedTwice(t *testing.T) {
	for name, cfg := range map[string]Config{"demo": Demo(), "mixed": Mixed(14)} {
		t.Run(name, func(t *testing.T) {
			f := mustNew(t, cfg)
			for step := 1; step <= 140; step++ {
				f.Advance(f.after(time.Duration(step) * 6 * time.Second))
				for _, sv := range f.servers {
					for _, s := range sv.scheds {
						checkPool(t, s)
						have := s.finishedOut
						for _, r := range s.live() {
							have += r.generated()
						}
						emitted := s.decoded + s.prefillOut
						slack := 0.001
						if sv.spec.Speculative {
							slack = 1 + float64(len(s.batch)) + s.cutShort
						}
						if math.Abs(have-emitted) > slack {
							t.Fatalf("%s at %.0f s: passes emitted %.2f tokens, requests have %.2f", sv.name, s.now, emitted, have)
						}
						if len(s.between) != s.bootstrapping+s.transferring || s.compiling < 0 {
							t.Fatalf("%s: %d requests between engines, counted are %d and %d", sv.name, len(s.between), s.bootstrapping, s.transferring)
						}
					}
				}
				for _, l := range f.loads {
					open := 0
					seen := map[*request]bool{}
					for _, sv := range f.servers {
						for _, s := range sv.scheds {
							for _, r := range s.live() {
								if r.load == l && !(r.peer != nil && sv.prefillOnly()) && !seen[r] {
									seen[r] = true
									open++
								}
							}
						}
					}
					if l.sentRequests-l.endedRequests != open {
						t.Fatalf("load %s at %s: %d sent, %d ended, %d under way", l.spec.Name, f.Now(), l.sentRequests, l.endedRequests, open)
					}
				}
			}
			for _, fr := range f.fronts {
				if fr.active < 0 {
					t.Errorf("%s: %d active requests", fr.name, fr.active)
				}
			}
		})
	}
}

// When no more requests come, every queue drains and every counter of things under way is 0.
func TestQuietFleetIsEmpty(t *testing.T) {
	cfg := Demo()
	cfg.Faults = append(cfg.Faults, Fault{Name: "idle", At: 10 * time.Minute, For: time.Hour})
	f := mustNew(t, cfg)
	f.Advance(f.after(14*time.Minute + 30*time.Second))
	for _, sv := range f.servers {
		for _, s := range sv.scheds {
			if n := len(s.live()); n > 0 || s.bootstrapping+s.transferring+s.compiling > 0 {
				t.Errorf("%s: %d requests left, %d in bootstrap, %d in transfer, %d in grammar", sv.name, n, s.bootstrapping, s.transferring, s.compiling)
			}
			if s.pool.used() != 0 || s.seqLens != 0 || s.promised != 0 {
				t.Errorf("%s: an empty engine uses %d tokens (context %.1f, promised %.1f)", sv.name, s.pool.used(), s.seqLens, s.promised)
			}
		}
	}
	for _, name := range []string{"rollout-0", "chat-0", "decode-0"} {
		e := expose(t, f, name)
		for _, metric := range []string{"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage", "sglang:gen_throughput", "sglang:http_requests_active"} {
			v, n := e.sum(metric, `model_name`)
			if metric == "sglang:http_requests_active" {
				v, n = e.sum(metric, `/generate`)
			}
			if v != 0 || n == 0 {
				t.Errorf("%s: %s is %g in %d series, want 0", name, metric, v, n)
			}
		}
	}
}

// The wire agrees with the model: what requests had is what the counters say.
func TestCountersAreWhatHappened(t *testing.T) {
	cfg := Uniform(3)
	f := mustNew(t, cfg)
	f.Advance(f.after(5 * time.Minute))
	for _, sv := range f.servers {
		e, s := expose(t, f, sv.name), sv.scheds[0]
		check := func(metric string, want float64, parts ...string) {
			t.Helper()
			if got, _ := e.sum(metric, parts...); math.Abs(got-want) > 1e-6*want {
				t.Errorf("%s: %s is %g, want %g", sv.name, metric, got, want)
			}
		}
		check("sglang:generation_tokens_total", s.finishedOut)
		check("sglang:realtime_tokens_total", s.decoded, `mode="decode"`)
		requests, _ := e.sum("sglang:num_requests_total")
		check("sglang:e2e_request_latency_seconds_count", requests)
		check("sglang:inter_token_latency_seconds_count", s.decoded)
		first, _ := e.sum("sglang:time_to_first_token_seconds_count")
		if open := float64(len(s.batch)); first != requests+open {
			t.Errorf("%s: %g first tokens, %g finished and %g running", sv.name, first, requests, open)
		}
		compute, _ := e.sum("sglang:realtime_tokens_total", `mode="prefill_compute"`)
		input, _ := e.sum("sglang:prefill_effective_tokens_total", `mode="input"`)
		if compute < input || input == 0 {
			t.Errorf("%s: %g tokens computed, %g of them first-time input", sv.name, compute, input)
		}
		hits, _ := e.sum("sglang:prefill_effective_tokens_total", `_hit"`)
		if share := hits / (hits + input); share < 0.15 || share > 0.95 {
			t.Errorf("%s: hit rate %.2f is not believable for chats", sv.name, share)
		}
	}
}
