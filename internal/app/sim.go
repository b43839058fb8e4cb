package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
)

// SimOptions configure [SimEngines].
type SimOptions struct {
	Fleet     string // demo, uniform:N, mixed:N
	Seed      int64
	Speed     float64
	Faults    []string // NAME@T+D[:MEMBER]
	Listen    string
	ConfigOut string        // file for a prometheus.yml; "" for none
	For       time.Duration // 0 runs until ctx ends
	Logger    *slog.Logger
	Out       io.Writer
}

// SimEngines serves a simulated fleet on loopback until ctx ends.
func SimEngines(ctx context.Context, o SimOptions) error {
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	cfg, err := FleetConfig(o.Fleet, o.Seed, o.Faults)
	if err != nil {
		return err
	}
	running, err := startFleet(ctx, cfg, o.Listen, o.Speed, o.Logger)
	if err != nil {
		return err
	}
	for _, t := range running.Targets() {
		fmt.Fprintf(o.Out, "%-24s %-16s http://%s%s\n", t.Member, t.Kind, t.Addr, t.Path)
	}
	if o.ConfigOut != "" {
		if err := os.WriteFile(o.ConfigOut, sim.PrometheusConfig(running.Targets(), 5*time.Second), 0o644); err != nil {
			return fmt.Errorf("--config-out: %w", err)
		}
		fmt.Fprintf(o.Out, "rollscope serve --config.file %s\n", o.ConfigOut)
	}
	running.Wait()
	return nil
}

// FleetConfig reads "demo", "uniform:64" or "mixed:20". Faults, when given, replace the scripted ones.
func FleetConfig(fleet string, seed int64, faults []string) (sim.Config, error) {
	var cfg sim.Config
	kind, size, _ := strings.Cut(fleet, ":")
	n, err := strconv.Atoi(size)
	switch {
	case kind == "demo" && size == "":
		cfg = sim.Demo()
	case err != nil || n < 1 || n > 2000 || (kind != "uniform" && kind != "mixed"):
		return cfg, fmt.Errorf("--fleet %q: write demo, uniform:N or mixed:N with N from 1 to 2000", fleet)
	case kind == "uniform":
		cfg = sim.Uniform(n)
	default:
		cfg = sim.Mixed(n)
	}
	if seed != 0 {
		cfg.Seed = uint64(seed)
	}
	if len(faults) > 0 {
		cfg.Faults = nil
		for _, s := range faults {
			f, err := sim.ParseFault(s)
			if err != nil {
				return cfg, err
			}
			cfg.Faults = append(cfg.Faults, f)
		}
	}
	return cfg, nil
}

// startFleet serves a fleet that lives from now on.
func startFleet(ctx context.Context, cfg sim.Config, listen string, speed float64, logger *slog.Logger) (*sim.Running, error) {
	cfg.Start = time.Now()
	fleet, err := sim.New(cfg)
	if err != nil {
		return nil, err
	}
	return sim.Serve(ctx, fleet, sim.Options{Listen: listen, Speed: speed, Logger: logger})
}
