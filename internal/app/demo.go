package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/sim/lines"
	"github.com/rollscope/rollscope/internal/sim/passes"
)

// DemoOptions configure [Demo].
type DemoOptions struct {
	Listen  string // of API and page; the next free port is taken when this one is busy
	Dir     string // data directory; "" for a temporary one that is removed at the end
	Seed    int64
	Speed   float64
	Faults  []string
	Logger  *slog.Logger
	Version string
	Out     io.Writer

	started func(url string)
}

// demoInterval is short, so that the first chart moves within seconds.
const demoInterval = 2 * time.Second

// Demo serves a simulated fleet and records it with a real recorder, until ctx ends.
func Demo(ctx context.Context, o DemoOptions) error {
	cfg, err := FleetConfig("demo", o.Seed, o.Faults)
	if err != nil {
		return err
	}
	dir := o.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rollscope-demo-"); err != nil {
			return fmt.Errorf("a directory for the recording: %w", err)
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("a directory for the recording: %w", err)
	}
	// The fleet outlives the recorder: engines that vanish while it stops would look like an outage.
	fleetCtx, stopFleet := context.WithCancel(context.WithoutCancel(ctx))
	running, err := startFleet(fleetCtx, cfg, "127.0.0.1:0", o.Speed, o.Logger)
	if err != nil {
		stopFleet()
		return err
	}
	run := &demoRun{dir: filepath.Join(dir, "run"), seed: o.Seed, logger: o.Logger}
	var training sync.WaitGroup
	training.Go(func() {
		if err := run.run(fleetCtx); err != nil {
			o.Logger.Error("the demo's training run ended", "err", err)
		}
	})
	defer func() {
		stopFleet()
		running.Wait()
		training.Wait()
	}()
	traces := &demoTraces{running: running, seed: o.Seed, logger: o.Logger}
	file := filepath.Join(dir, "rollscope-demo.yml")
	text := append(sim.PrometheusConfig(running.Targets(), demoInterval), namesConfig(running.Targets())...)
	text = fmt.Appendf(text, "  rollouts:\n    - {run: demo-grpo, path: %q, gpus: 16, scalars: %q}\n", run.pattern(), run.scalars())
	logs, err := lines.Open(filepath.Join(dir, "logs"), lines.FileOptions{})
	if err != nil {
		stopFleet()
		return fmt.Errorf("the demo's logs: %w", err)
	}
	writer := lines.Live(fleetCtx, running, lines.Options{Seed: cfg.Seed, Millis: true}, logs, o.Logger)
	training.Go(func() { _ = writer.Wait() }) // it has logged why
	text = append(text, lines.Config(logs, running.Targets())...)
	sender, err := passes.Live(fleetCtx, running, passes.FleetOptions{Drop: map[string]float64{"decode-0": 0.002}, Seed: cfg.Seed}, o.Logger)
	if err != nil {
		stopFleet()
		return fmt.Errorf("the demo's forward passes: %w", err)
	}
	training.Go(sender.Wait)
	text = append(text, passesConfig(sender.Sockets())...)
	// More than the usual share, so that there is something to look at after a minute.
	text = append(text, "  traces: {sampling: {ratio: 10%}}\n"...)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("the demo's configuration: %w", err)
	}
	return Serve(ctx, ServeOptions{
		ConfigFile: file,
		Store:      StoreOptions{Dir: filepath.Join(dir, "data"), OutOfOrder: 10 * time.Minute},
		Web:        WebOptions{Listen: []string{o.Listen}}, BuiltinRules: true,
		Logger: o.Logger, Version: o.Version, Out: o.Out,
		mode: api.ModeDemo, nextPort: true, started: func(url string) {
			training.Go(func() { traces.run(fleetCtx, url) })
			if o.started != nil {
				o.started(url)
			}
		},
	})
}

// passesConfig is the part of a configuration that receives the fleet's forward passes: the pair that prefills
// and decodes apart is one deployment, each of the others one of its own.
func passesConfig(sockets []passes.Socket) []byte {
	var b bytes.Buffer
	b.WriteString("  planner: {optimization_target: sla, enable_load_scaling: true, ttft_ms: 800, itl_ms: 40, throughput_adjustment_interval_seconds: 120}\n")
	b.WriteString("  forward_passes:\n    zmq:\n")
	for _, s := range sockets {
		namespace, component := s.Member, "backend"
		switch s.Role {
		case engine.Prefill:
			namespace, component = "pd", "prefill"
		case engine.Decode:
			namespace, component = "pd", "decode"
		}
		fmt.Fprintf(&b, "      - {endpoint: %q, engine: %q, namespace: %s, component: %s}\n", s.Endpoint, s.Addr, namespace, component)
	}
	return b.Bytes()
}

// namesConfig is the section of a configuration that gives members their names: the ports are whatever
// was free.
func namesConfig(targets []sim.Target) []byte {
	var b bytes.Buffer
	b.WriteString("rollscope:\n  engines:\n")
	seen := map[string]bool{}
	for _, t := range targets {
		if !seen[t.Member] {
			seen[t.Member] = true
			fmt.Fprintf(&b, "    - {instance: %q, name: %q}\n", t.Addr, t.Member)
		}
	}
	return b.Bytes()
}
