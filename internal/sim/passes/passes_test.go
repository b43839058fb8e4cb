package passes

import (
	"bytes"
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/fpm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// live asks a rank for all it says in a time, and reads it.
func live(t *testing.T, o Options, d time.Duration) (said []Message, read []fpm.Pass) {
	t.Helper()
	r, err := NewRank(o, 3)
	if err != nil {
		t.Fatal(err)
	}
	dec := fpm.Decoder{Positional: o.Form == "positional"}
	for at := time.Duration(0); at < d; at += time.Duration(float64(time.Second) / o.Rate) {
		m, ok := r.Next(at)
		if !ok {
			continue
		}
		m.Payload = bytes.Clone(m.Payload)
		var p fpm.Pass
		if err := dec.Decode(m.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if p.Heartbeat() != m.Heartbeat || p.Rank != 3 || p.WorkerID != o.Worker || p.Counter != m.Number && o.Form != "v0" {
			t.Fatalf("%+v is %+v", m, p)
		}
		said, read = append(said, m), append(read, p)
	}
	return said, read
}

func TestRank(t *testing.T) {
	for _, form := range Forms() {
		o := Options{Ranks: 4, Rate: 20, Worker: "18446744073709551557", Form: form, Idle: 0.5, Drop: 0.1, Restart: 4 * time.Second, Seed: 1}
		said, read := live(t, o, 10*time.Second)
		beats, restarts, dropped, next := 0, 0, 0, uint64(0)
		for i, m := range said {
			if m.Restart {
				restarts, next = restarts+1, 0
			}
			if m.Number != next {
				t.Fatalf("%s: message %d has number %d, expected %d", form, i, m.Number, next)
			}
			next++
			if m.Dropped {
				dropped++
			}
			if m.Heartbeat {
				beats++
			} else if s, ok := read[i].Seconds(); !ok || s <= 0 || s > 1/o.Rate {
				t.Fatalf("%s: a pass of %v s at %v a second", form, s, o.Rate)
			}
		}
		// 5 s of passes and 5 s of heartbeats, and one more since the engine that began anew says so at once.
		if len(said)-beats != 100 || beats < 4 || beats > 6 || restarts != 2 || dropped == 0 || dropped > 30 {
			t.Errorf("%s: %d messages, %d heartbeats, %d restarts, %d dropped", form, len(said), beats, restarts, dropped)
		}
		again, _ := live(t, o, 10*time.Second)
		for i := range again {
			if !bytes.Equal(again[i].Payload, said[i].Payload) {
				t.Fatalf("%s: the same seed lives another life from message %d on", form, i)
			}
		}
	}
}

func TestRunEnds(t *testing.T) {
	o := Options{Endpoint: "tcp://127.0.0.1:0", Ranks: 2, Rate: 5000, Count: 300}
	c, err := Run(context.Background(), o)
	if err != nil || c.Passes != 600 || c.Unheard != 600 {
		t.Errorf("%+v, %v", c, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	o.Count, o.Wait = 0, true
	o.Begun = func([]string) { stop() } // while it waits for a subscriber
	if c, err := Run(ctx, o); err != nil || c.Passes != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	o.Endpoint = "nowhere"
	if _, err := Run(context.Background(), o); err == nil {
		t.Error("no error for what is no endpoint")
	}
}
