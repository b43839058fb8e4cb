package app

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tailsample"
)

// wholeRequests are traces of one span each, of requests whose first token took so long.
func wholeRequests(from, to int, ttft float64) []span.Scope {
	var spans []span.Span
	now := time.Now().UnixNano()
	for i := from; i < to; i++ {
		s := span.Span{Header: span.Header{ID: span.ID{7: 1}, Name: " Req 1", Start: now, End: now + 1e9}, Service: "sglang",
			Resource: []span.Attr{{Key: "service.name", Value: span.Value{Str: "sglang"}}},
			Attrs:    []span.Attr{{Key: "gen_ai.latency.time_to_first_token", Value: span.Value{Type: span.Float, Str: strconv.FormatFloat(ttft, 'g', -1, 64)}}}}
		binary.BigEndian.PutUint64(s.Trace[8:], uint64(i)+1)
		spans = append(spans, s)
	}
	scopes, err := span.Scan(span.AppendTraces(nil, spans), nil)
	if err != nil {
		panic(err)
	}
	return scopes
}

// A request that was slow before a stop is slow right after it; without what was known, or with a damaged
// file, none is until enough were seen.
func TestPercentilesOverRestarts(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	slow := tailsample.DefaultPolicy()
	slow.Ratio, slow.Slow.Requests = 0, 100
	policy := tailsample.Options{Policy: slow}
	now := time.Now()
	byRule := func(b *samplingBench) map[string]int64 { // once all is decided
		b.t.Helper()
		now = now.Add(time.Minute / 2)
		b.tick(ctx, now)
		st, _ := b.stats()
		return st.Kept
	}
	damaged := func(b *samplingBench) int64 {
		_, drops := b.stats()
		i := slices.IndexFunc(drops, func(d tailsample.Drop) bool { return d.Source == "traces" && d.Reason == "damaged_percentiles" })
		if i < 0 {
			return 0
		}
		return drops[i].Count
	}

	b := openSampling(t, dir, policy, -1)
	file := b.learned.path
	b.must(b.take(ctx, wholeRequests(0, 200, 0.1)))
	b.released = time.Now().Add(time.Hour) // so that only the stop writes it
	if kept := byRule(b); len(kept) != 0 {
		t.Fatalf("equal requests are slow: %v", kept)
	}
	runCtx, stopRun := context.WithCancel(ctx)
	stopRun()
	b.must(b.run(runCtx))
	if info, err := os.Stat(file); err != nil || info.Size() > 4<<10 {
		t.Fatalf("what was learned is not written, or is large: %v %v", info, err)
	}
	b.stop()

	b = openSampling(t, dir, policy, -1)
	b.must(b.take(ctx, wholeRequests(300, 301, 0.5)))
	b.must(b.take(ctx, wholeRequests(301, 302, 0.1)))
	if kept := byRule(b); len(kept) != 1 || kept["slow:ttft_p99"] != 1 || damaged(b) != 0 {
		t.Errorf("after a restart: kept %v", kept)
	}
	// Another policy forgets nothing either.
	other := policy
	other.Policy.Tools = false
	b.must(b.use(other, time.Now()))
	b.must(b.take(ctx, wholeRequests(302, 303, 0.5)))
	if kept := byRule(b); kept["slow:ttft_p99"] != 2 {
		t.Errorf("after a change of the policy: kept %v", kept)
	}
	b.stop()

	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for name, bad := range map[string][]byte{
		"cut": good[:len(good)-5], "empty": {}, "of another version": []byte("rollscope percentiles 9\n"), "too large": make([]byte, tailsample.MaxLearned+1),
	} {
		b.must(os.WriteFile(file, bad, 0o666))
		b = openSamplingTold(t, dir, policy, -1, &log)
		if damaged(b) != 1 || !strings.Contains(log.String(), file) {
			t.Errorf("%s: counted %d times, told: %q", name, damaged(b), &log)
		}
		b.must(b.take(ctx, wholeRequests(400, 401, 0.5)))
		if kept := byRule(b); len(kept) != 0 { // which replaces the file, too
			t.Errorf("%s: kept %v", name, kept)
		}
		b.stop()
		log.Reset()
		b = openSampling(t, dir, policy, -1)
		if damaged(b) != 0 {
			t.Errorf("%s: the damaged file is still there", name)
		}
		b.stop()
	}
}
