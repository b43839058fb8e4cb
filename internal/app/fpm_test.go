package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/fpmbus"
	"github.com/rollscope/rollscope/internal/sim/passes"
)

func TestFPMSourceForms(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"discovery+ftp://x", "is no discovery"},
		{"discovery+file://relative", "is no discovery"},
		{"amqp://h:1", "is no source"},
		{"broker+tcp://nowhere", "nowhere"},
		{"nats://", "is no address"},
	} {
		if _, _, err := fpmSources(FPMOptions{Sources: []string{c.source}}, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.source, err, c.want)
		}
	}
	if _, _, err := fpmSources(FPMOptions{Sources: []string{"tcp://127.0.0.1:1", "tcp://127.0.0.1:1"}}, nil); err == nil {
		t.Error("a source that is named twice was taken")
	}
	sources, files, err := fpmSources(FPMOptions{Sources: []string{"broker+tcp://127.0.0.1:1,tcp://127.0.0.1:2", "discovery+http://127.0.0.1:2379"}}, nil)
	if err != nil || len(sources) != 2 || files {
		t.Errorf("%d sources, files %v, %v", len(sources), files, err)
	}
}

// A publisher that only discovery names is found, and what it publishes is read.
func TestFPMDiscoveryFile(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	engines := make(chan string, 1)
	wg.Go(func() {
		if _, err := passes.Run(ctx, passes.Options{Endpoint: "tcp://127.0.0.1:0", Ranks: 1, Rate: 100, Worker: "7", Begun: func(at []string) { engines <- at[0] }}); err != nil {
			t.Error(err)
		}
	})
	plane := make(chan string, 1)
	wg.Go(func() {
		if _, err := RelayFPM(ctx, FPMRelayOptions{
			FPMOptions: FPMOptions{Sources: []string{<-engines}, Logger: log}, To: "tcp://127.0.0.1:0", Scope: fpmbus.Scope{Namespace: "ns", Component: "backend", Endpoint: "generate"},
			Every: time.Hour, Began: func(at string) { plane <- at }, Tell: func(FPMRelayed) {},
		}); err != nil {
			t.Error(err)
		}
	})
	at := strings.TrimPrefix(<-plane, "plane+")
	entry := map[string]any{
		"type": "EventChannel", "topic": fpmbus.Topic, "instance_id": 7, "transport": map[string]any{"kind": "Zmq", "config": map[string]any{"endpoint": at}},
		"scope": map[string]any{"kind": "endpoint", "endpoint": map[string]any{"namespace": "ns", "component": "backend", "name": "generate"}},
	}
	value, err := json.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "channel"), value, 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	_, err = TailFPM(ctx, FPMOptions{Sources: []string{"discovery+file://" + dir}, Logger: log}, func(p FPMPass) error {
		if p.Namespace != "ns" || p.Component != "backend" || p.Pass.WorkerID != "7" {
			t.Errorf("%+v", p)
		}
		if n++; n == 10 {
			return context.Canceled
		}
		return nil
	})
	if n != 10 {
		t.Errorf("%d passes, %v", n, err)
	}
}
