package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/scrape"
)

// What is known of the time before this process is what the store has of a day, up to its start.
func TestRecordedPast(t *testing.T) {
	ctx := t.Context()
	store, err := metricstore.Open(ctx, metricstore.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), OutOfOrderWindow: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	start := time.Now().Truncate(time.Second)
	write := func(name, instance string, ago time.Duration, v float64) {
		t.Helper()
		app := store.Appendable().AppenderV2(ctx)
		if _, err := app.Append(0, labels.FromStrings("__name__", name, "job", "j", "instance", instance), 0, start.Add(-ago).UnixMilli(), v, nil, nil, storage.AOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		ago := time.Duration(5-i) * time.Hour
		write("up", "always", ago, 1)
		write("up", "once", ago, map[int]float64{1: 1}[i])
		write("up", "never", ago, 0)
		write("other", "other", ago, 1)
	}
	write("up", "long ago", pastWindow+time.Hour, 1)
	write("up", "only now", -time.Second, 1)
	past := &recordedPast{queryable: func() storage.Queryable { return store.Queryable() }, until: start, log: slog.New(slog.DiscardHandler)}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if past.up(gone, "j", "always") && past.known == nil {
		t.Error("something is known that was not read")
	}
	for instance, want := range map[string]bool{"always": true, "once": true, "never": false, "other": false, "long ago": false, "only now": false, "nobody": false} {
		if got := past.up(ctx, "j", instance); got != want {
			t.Errorf("%s: was up: %t, want %t", instance, got, want)
		}
	}
	if past.up(ctx, "another job", "always") {
		t.Error("another job's target was up")
	}
	write("up", "never", time.Minute, 1)
	if past.up(ctx, "j", "never") {
		t.Error("the past was read twice")
	}
}

// Targets are named as the configuration names them, and the store is asked about those that are down only.
func TestSystemTargets(t *testing.T) {
	yes, no := true, false
	id := scrape.Identity{Backend: engine.SGLang}
	targets := []scrape.TargetInfo{
		{Job: "j", Instance: "a:1", URL: "http://a:1/metrics", Up: &yes, EverUp: true, Identity: id},
		{Job: "j", Instance: "a:2", URL: "http://a:2/metrics", Up: &no, Reason: "connection_refused"},
		{Job: "j", Instance: "a:3", URL: "http://a:3/metrics"},
		{Job: "j", Instance: "a:4", URL: "http://a:4/metrics", Up: &no, EverUp: true, Reason: "timeout"},
		{Job: "j", Instance: "b", URL: "https://b/metrics", Up: &yes, EverUp: true},
		{Job: "j", Instance: "c", URL: "http://c/metrics", Up: &yes, EverUp: true},
		{Job: "j", Instance: "loads", URL: "http://d:1/v1/loads?format=prometheus", Up: &yes, EverUp: true},
	}
	cfg := &config.Config{Rollscope: config.Rollscope{Engines: []config.Engine{{Instance: "a:1", Aliases: []string{"http://a:4", "b"}}}}}
	var asked []string
	var got []string
	for _, s := range systemTargets(targets, cfg, func(job, instance string) bool { asked = append(asked, job+" "+instance); return true }) {
		got = append(got, fmt.Sprintf("%s=%s %t", s.Instance, s.Engine, s.EverUp))
	}
	if want := "a:1=a:1 true, a:2= true, a:3= false, a:4=a:1 true, b:443=a:1 true, c:80= true"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
	if strings.Join(asked, ",") != "j a:2" {
		t.Errorf("the store was asked about %q", asked)
	}
	if list := systemTargets(targets[:1], nil, nil); len(list) != 1 || list[0].Engine != "" {
		t.Errorf("without a configuration: %v", list)
	}
}

// address is a listener of an address of which nothing else is needed.
type address struct {
	net.Listener
	addr net.TCPAddr
}

func (a address) Addr() net.Addr { return &a.addr }

// Every door that strangers can reach is named, and none when there are users or tokens.
func TestStrangers(t *testing.T) {
	at := func(ip string, port int) net.Listener {
		return address{addr: net.TCPAddr{IP: net.ParseIP(ip), Port: port}}
	}
	for _, tt := range []struct {
		name               string
		web, tempo, system net.Listener
		tokens             bool
		secure             bool
		want               string
	}{
		{"all on loopback", at("127.0.0.1", 1), at("::1", 2), at("127.0.0.1", 3), false, false, ""},
		{"the system port", at("127.0.0.1", 1), nil, at("0.0.0.0", 3), false, false, "http://0.0.0.0:3"},
		{"tempo", at("127.0.0.1", 1), at("10.0.0.1", 2), nil, false, false, "http://10.0.0.1:2"},
		{"all, with TLS and no users", at("10.0.0.1", 1), at("10.0.0.1", 2), at("10.0.0.1", 3), false, true, "https://10.0.0.1:1, https://10.0.0.1:2, https://10.0.0.1:3"},
		{"with tokens", at("10.0.0.1", 1), nil, at("10.0.0.1", 3), true, false, ""},
	} {
		s := &sockets{listeners: []net.Listener{tt.web}, auth: api.NewWebAuth(""), secure: tt.secure}
		if tt.system != nil {
			s.system = &systemPart{listener: tt.system}
		}
		if tt.tokens {
			s.tokens = []api.Token{{}}
		}
		if got := strings.Join(s.strangers(tt.tempo), ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
