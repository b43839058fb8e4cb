package passes

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
	"github.com/rollscope/rollscope/internal/sim"
)

// Each scheduler of a fleet that is served is heard on a socket of its own: numbers without a gap, passes
// where there is load, heartbeats where there is none.
func TestLiveFleet(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	log := slog.New(slog.DiscardHandler)
	cfg := sim.Uniform(2)
	cfg.Start = time.Now()
	cfg.Members[1].DP = 2
	for i := range cfg.Loads { // the second engine has nothing to do
		cfg.Loads[i].To, cfg.Loads[i].Rate = []string{cfg.Members[0].Name}, 5
	}
	cfg.Faults = nil
	fleet, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	running, err := sim.Serve(ctx, fleet, sim.Options{Listen: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := Live(ctx, running, FleetOptions{}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Wait()
	defer sender.Wait()
	defer stop()
	sockets := sender.Sockets()
	if len(sockets) != 3 {
		t.Fatalf("%+v", sockets)
	}
	var mu sync.Mutex
	track := fpm.NewTracker(fpm.Options{})
	decoder := fpm.Decoder{}
	sink := fpmbus.SinkFunc(func(_ context.Context, batch []fpmbus.Message) error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range batch {
			var p fpm.Pass
			if err := decoder.Decode(m.Payload, &p); err != nil {
				t.Error(err)
			}
			track.Observe(m.Received.UnixNano(), fpm.Origin{Source: m.Source, HasHop: m.HasSequence, Hop: m.Sequence}, &p)
		}
		return nil
	})
	var sources []fpmbus.Source
	for _, s := range sockets {
		src, err := fpmbus.NewEngineSocket(fpmbus.EngineSocketOptions{Common: fpmbus.Common{Name: s.Endpoint}, Endpoint: s.Endpoint, DPRank: s.Rank})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
	}
	bus, err := fpmbus.New(fpmbus.Options{Sources: sources, Outlets: []fpmbus.Outlet{{Name: "test", Sink: sink}}})
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan error, 1)
	listen, leave := context.WithCancel(ctx)
	go func() { heard <- bus.Run(listen) }()
	seen := func() (out []fpm.SourceStatus) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range sockets {
			out = append(out, track.Source(s.Endpoint))
		}
		return out
	}
	for {
		s := seen()
		if s[0].Passes > 50 && s[1].Heartbeats > 1 && s[2].Heartbeats > 1 {
			break
		}
		if !sleep(ctx, 50*time.Millisecond) {
			t.Fatalf("%+v", s)
		}
	}
	leave()
	if err := <-heard; err != nil {
		t.Error(err)
	}
	if s := seen(); s[1].Passes != 0 || s[2].Passes != 0 {
		t.Errorf("an idle engine sends passes: %+v", s)
	}
	var names []string
	for _, s := range track.Statuses(time.Now().UnixNano()) {
		if s.Lost() != 0 || s.Restarts != 0 || s.Duplicates != 0 {
			t.Errorf("%+v", s)
		}
		names = append(names, s.Key.Worker)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) != 2 {
		t.Errorf("the workers are %v, want two", names)
	}
}
