package passstore

import (
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
)

func TestScratch(t *testing.T) {
	events, _ := openEvents(t, eventstore.Options{Dir: t.TempDir()})
	base := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	c := newClock(base)
	s := open(t, Options{Events: events, Retention: time.Hour, Now: c.now})
	s.Write(passesOf(base, "1", 0, 80))
	settle(t, s, events)
	c.set(base.Add(time.Hour + 10*time.Second))
	f := expiredFilter(c.now().Add(-time.Hour))
	t.Log(f, countOf(t, events, f), countOf(t, events, `{row="pass"}`), countOf(t, events, `{row="pass"} !burst:*`))
	if err := s.Expire(within(t)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		time.Sleep(500 * time.Millisecond)
		t.Log(countOf(t, events, f), countOf(t, events, `{row="pass"}`), countOf(t, events, `{row="pass"} !burst:*`))
	}
}
