package passstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/fpm"
)

// A reader that follows sees every pass once, and is told of those that memory lost.
func TestRecentAfter(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	m := newRecent("a", 2*chunkSize)
	if p, err := m.after("", "", 10); err != nil || len(p.Rows) != 0 || p.Next != "a-1" || p.More || p.Gone != 0 {
		t.Fatalf("of nothing: %+v, %v", p, err)
	}
	m.add(passesOf(base, "1", 0, 100))
	for _, x := range []struct {
		name, cursor, engine string
		limit                int
		want, next           string
		more                 bool
	}{
		{"newest", "", "", 10, "90..99", "a-101", false},
		{"all", "", "", 1000, "0..99", "a-101", false},
		{"after", "a-51", "", 1000, "50..99", "a-101", false},
		{"limit", "a-51", "", 20, "50..69", "a-71", true},
		{"limit to the end", "a-51", "", 50, "50..99", "a-101", false},
		{"nothing new", "a-101", "", 10, "", "a-101", false},
		{"a former process", "b-51", "", 10, "90..99", "a-101", false},
		{"beyond the last", "a-500", "", 10, "90..99", "a-101", false},
		{"engine", "a-51", "ns/backend/1", 1000, "50..99", "a-101", false},
		{"another engine", "a-51", "ns/backend/2", 1000, "", "a-101", false},
	} {
		p, err := m.after(x.cursor, x.engine, x.limit)
		if err != nil || counters(p.Rows) != x.want || p.Next != x.next || p.More != x.more || p.Gone != 0 {
			t.Errorf("%s: %s, next %s, more %v, gone %d, %v", x.name, counters(p.Rows), p.Next, p.More, p.Gone, err)
		}
	}
	for _, bad := range []string{"a", "a-", "a-x", "a-0", "a--1", "-"} {
		if _, err := m.after(bad, "", 10); err == nil || !strings.Contains(err.Error(), "no cursor") {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}

	// Over the end of the ring: what is no longer there is counted, the rest comes in order.
	const all = 5*chunkSize + 17
	m.add(passesOf(base, "1", 100, all))
	p, err := m.after("a-101", "", all)
	held, span := m.span()
	if err != nil || held != 2*chunkSize || int(p.Gone) != all-100-held || counters(p.Rows) != fmt.Sprintf("%d..%d", all-held, all-1) {
		t.Errorf("over the end: %s, gone %d, %d held, %v", counters(p.Rows), p.Gone, held, err)
	}
	if want := time.Duration(held-1) * 250 * time.Millisecond; span != want {
		t.Errorf("they span %v, want %v", span, want)
	}
}

// One engine of many is found without the others, whether it is followed or asked for its newest.
func TestRecentEngines(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	m := newRecent("a", 4*chunkSize)
	for i := range 200 {
		for w := range 8 {
			m.add([]Row{pass(base, fmt.Sprint(w), 0, i), pass(base, fmt.Sprint(w), 1, i)})
		}
	}
	p, err := m.after("", "ns/backend/3", 6)
	if err != nil || len(p.Rows) != 6 || p.More {
		t.Fatalf("%d rows, more %v, %v", len(p.Rows), p.More, err)
	}
	for i, r := range p.Rows {
		if r.Engine != "ns/backend/3" || r.Counter != uint64(197+i/2) || r.Key.Rank != uint32(i%2) {
			t.Errorf("row %d is %s rank %d counter %d", i, r.Engine, r.Key.Rank, r.Counter)
		}
	}
	seen, cursor := 0, "a-1"
	for {
		p, err := m.after(cursor, "ns/backend/5", 7)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(p.Rows)
		if cursor = p.Next; !p.More {
			break
		}
	}
	if seen != 400 {
		t.Errorf("%d passes of the engine, want 400", seen)
	}
}

// Memory holds what a row says, but for numbers of requests that cannot be.
func TestRecentRow(t *testing.T) {
	r := pass(time.Unix(1_700_000_000, 5), "9007199254740993", 7, 3)
	r.Name, r.Flags, r.Missing, r.Counter = "http://h:1", Restart|Gap|Implausible, 12, 1<<63+1
	r.Scheduled = fpm.Scheduled{PrefillRequests: 1, PrefillTokens: 1 << 40, PrefillLengths: 2.5, PrefillKV: 3, DecodeRequests: 4, DecodeKV: 1<<53 + 1, DecodeLengths: 6.25}
	r.Queued = fpm.Queued{PrefillRequests: 7, PrefillTokens: 8, PrefillLengths: 0.5, DecodeRequests: 9, DecodeKV: 10, DecodeLengths: 1024}
	bare := Row{Key: fpm.Key{Source: "ipc:///run/fpm.0"}, Engine: "//ipc:///run/fpm.0", Time: 1, Flags: Heartbeat}
	m := newRecent("a", 1)
	m.add([]Row{r, bare})
	p, err := m.after("", "", 2)
	if err != nil || len(p.Rows) != 2 || p.Rows[0] != r || p.Rows[1] != bare {
		t.Errorf("%+v, %v\nwant %+v", p.Rows, err, []Row{r, bare})
	}
}

// Ranks without number that come and go do not fill memory.
func TestRecentManyRanks(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	m := newRecent("a", 4*chunkSize)
	for i := range 1<<16 + 10 {
		m.add([]Row{pass(base, "1", uint32(i), i)})
	}
	if n, _ := m.span(); len(m.ranks) != 10 || len(m.at) != 10 || n != 10 {
		t.Errorf("%d names, %d keys, %d passes: want 10 of each", len(m.ranks), len(m.at), n)
	}
}

// Readers that follow while passes come miss none.
func TestRecentReaders(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	m := newRecent("a", 64*chunkSize)
	const all = 20 * chunkSize
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			next, cursor := uint64(0), "a-1"
			for next < all {
				p, err := m.after(cursor, "", 1000)
				if err != nil || p.Gone != 0 {
					t.Errorf("gone %d, %v", p.Gone, err)
					return
				}
				for i := range p.Rows {
					if p.Rows[i].Counter != next {
						t.Errorf("counter %d, want %d", p.Rows[i].Counter, next)
						return
					}
					next++
				}
				cursor = p.Next
				m.span()
			}
		})
	}
	for i := 0; i < all; i += 64 {
		m.add(passesOf(base, "1", i, i+64))
	}
	wg.Wait()
}
