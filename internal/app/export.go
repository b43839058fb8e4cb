package app

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/signal"
)

// ExportOptions configure [Export].
type ExportOptions struct {
	What       string // grafana, alerts, prometheus
	Dir        string
	ConfigFile string   // whose signals, boards and alerts are included; "" for none
	Recorded   bool     // boards read recorded series
	Scrape     []string // of prometheus: HOST:PORT[/path]
	Logger     *slog.Logger
}

// Export writes files for other tools under Dir and returns their paths.
func Export(o ExportOptions) ([]string, error) {
	cfg, err := ServeOptions{ConfigFile: o.ConfigFile, Scrape: o.Scrape, ScrapeInterval: 15 * time.Second}.loadConfig()
	if err != nil {
		return nil, err
	}
	cat, boards, err := shownBy(cfg)
	if err != nil {
		return nil, err
	}
	switch o.What {
	case "grafana":
		return exportGrafana(o, cat, boards)
	case "alerts":
		return exportRules(o.Dir, cat, cfg)
	case "prometheus":
		files, err := exportRules(filepath.Join(o.Dir, "rules"), cat, cfg)
		if err != nil {
			return nil, err
		}
		text := "rule_files: [\"rules/*.yml\"]\n" + cfg.Prometheus.String()
		return append(files, filepath.Join(o.Dir, "prometheus.yml")), write(o.Dir, "prometheus.yml", []byte(text))
	}
	return nil, fmt.Errorf("export %s: there are grafana, alerts and prometheus", o.What)
}

func exportGrafana(o ExportOptions, cat *signal.Catalog, custom []dashboard.Board) ([]string, error) {
	names, err := dashboard.Export(o.Dir, dashboard.ExportOptions{
		GrafanaOptions: dashboard.GrafanaOptions{Recorded: o.Recorded}, Catalog: cat, Boards: dashboard.Boards(cat, custom...),
	})
	for i, n := range names {
		names[i] = filepath.Join(o.Dir, filepath.FromSlash(n))
	}
	return names, err
}

// exportRules writes what serve evaluates, for a Prometheus of its own.
func exportRules(dir string, cat *signal.Catalog, cfg *config.Config) ([]string, error) {
	rules, err := builtinRules(cat, cfg.Rollscope.Alerts, true)
	if err != nil {
		return nil, err
	}
	var out []string
	for i, name := range []string{"rollscope-recording.yml", "rollscope-alerts.yml"} {
		if err := write(dir, name, rules[i].Data); err != nil {
			return nil, err
		}
		out = append(out, filepath.Join(dir, name))
	}
	return out, nil
}

func write(dir, name string, data []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), data, 0o644)
}
