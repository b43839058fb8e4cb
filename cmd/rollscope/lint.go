package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/scrape"
	"github.com/rollscope/rollscope/internal/signal"
)

// maxFetched bounds an exposition that is fetched for a lint.
const maxFetched = 64 << 20

type lintCmd struct {
	*env
	what    string
	files   []string
	against []string
	format  string
}

func addLint(a *kingpin.Application, e *env) {
	c := &lintCmd{env: e}
	cmd := a.Command("lint", "What would be blind or wrong in rules, boards or a configuration, with the successor's name.").HelpLong(`
--against takes an exposition (file or URL of /metrics) or the address of a server with Prometheus's API.
Exit code: 0 nothing found, 1 something found, 2 a file cannot be read, 3 the target cannot be read.
  rollscope lint rules alerts.yml --against http://127.0.0.1:30000/metrics
  rollscope lint boards board.json --against exposition.prom
  rollscope lint config rollscope.yaml
`)
	cmd.Arg("what", "rules, boards (or dashboards), or config.").Required().EnumVar(&c.what, "rules", "boards", "dashboards", "config")
	cmd.Arg("file", "Rule files (YAML), Grafana boards (JSON), or a configuration.").Required().StringsVar(&c.files)
	cmd.Flag("against", "Exposition file, URL of one, or URL of a Prometheus-compatible server (repeatable).").PlaceHolder("EXPOSITION|URL").StringsVar(&c.against)
	cmd.Flag("format", "text or json.").Default("text").EnumVar(&c.format, "text", "json")
	cmd.Action(func(*kingpin.ParseContext) error { return c.run() })
}

func (c *lintCmd) run() error {
	cat := signal.Default()
	names, err := c.names()
	if err != nil {
		return err
	}
	var (
		report dashboard.Report
		texts  [][]byte // all files: one may record what another reads
	)
	for _, file := range c.files {
		data, err := os.ReadFile(file)
		if err != nil {
			return badInput("%w", err)
		}
		texts = append(texts, data)
	}
	for i, file := range c.files {
		data := texts[i]
		switch c.what {
		case "config":
			r, err := lintConfig(cat, names, file, data)
			if err != nil {
				return badInput("%w", err)
			}
			report.Merge(r)
		case "rules":
			report.Merge(newLinter(cat, names).Recording(texts...).Rules(file, data))
		default:
			report.Merge(newLinter(cat, names).Board(file, data))
		}
	}
	if c.format == "json" {
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", " ")
		err = enc.Encode(report)
	} else {
		err = report.WriteText(c.out)
	}
	if err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	if w := report.Worst(); w == dashboard.Error || w == dashboard.Warning { // notes alone are no reason to stop a pipeline
		return &exitError{exitNo, nil}
	}
	return nil
}

// newLinter keeps a nil *NameSet from becoming a Names that is not nil.
func newLinter(cat *signal.Catalog, names *dashboard.NameSet) *dashboard.Linter {
	if names == nil {
		return dashboard.NewLinter(cat, nil)
	}
	return dashboard.NewLinter(cat, names)
}

// lintConfig reads a configuration as serve would, and judges its rule files and boards.
func lintConfig(cat *signal.Catalog, names *dashboard.NameSet, file string, data []byte) (dashboard.Report, error) {
	var report dashboard.Report
	cfg, err := config.Load(data, file)
	if err != nil {
		return report, err
	}
	if cat, err = cat.With(dashboard.CustomSignals(cfg.Rollscope.Signals)); err != nil {
		return report, fmt.Errorf("%s: %w", file, err)
	}
	boards, err := dashboard.Custom(cat, cfg.Rollscope.Boards)
	if err != nil {
		return report, fmt.Errorf("%s: %w", file, err)
	}
	linter := newLinter(cat, names)
	for _, b := range boards {
		for _, s := range b.Sections {
			for _, p := range s.Panels {
				targets, err := p.Queries(cat, dashboard.QueryOptions{})
				if err != nil {
					return report, fmt.Errorf("%s: board %s, panel %q: %w", file, b.ID, p.Title, err)
				}
				for _, t := range targets {
					report.Merge(linter.Expr(file, fmt.Sprintf("board %s, panel %q", b.ID, p.Title), t.Expr))
				}
			}
		}
	}
	ruleFiles, texts := cfg.Prometheus.RuleFiles, [][]byte(nil)
	for _, f := range ruleFiles {
		text, err := os.ReadFile(f)
		if err != nil {
			return report, fmt.Errorf("%s: rule_files: %w", file, err)
		}
		texts = append(texts, text)
	}
	linter = linter.Recording(texts...)
	for i, f := range ruleFiles {
		report.Merge(linter.Rules(f, texts[i]))
	}
	return report, nil
}

// names reads what the files are held against; nil without --against.
func (c *lintCmd) names() (*dashboard.NameSet, error) {
	if len(c.against) == 0 {
		return nil, nil
	}
	all := dashboard.NewNameSet(strings.Join(c.against, ", "))
	for _, where := range c.against {
		if err := c.addNames(all, where); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *lintCmd) addNames(all *dashboard.NameSet, where string) error {
	var (
		body        []byte
		contentType = "text/plain"
		err         error
	)
	if strings.Contains(where, "://") {
		if body, contentType, err = fetch(c.ctx, where); err != nil {
			return unknown(err)
		}
	} else if body, err = os.ReadFile(where); err != nil {
		return badInput("--against: %w", err)
	}
	exposition := scrape.Inspect(body, contentType)
	if len(exposition.Families) > 0 {
		all.AddExposition(exposition)
		return nil
	}
	if !strings.Contains(where, "://") {
		return badInput("--against %s holds no metric: it must be the text of a /metrics answer", where)
	}
	// Not an exposition: the address of a server, then.
	list, err := storedNames(c.ctx, where)
	if err != nil {
		return unknown(fmt.Errorf("--against %s answers neither with an exposition nor with Prometheus's API: %w", where, err))
	}
	for _, n := range list {
		all.AddName(n)
	}
	return nil
}

func fetch(ctx context.Context, url string) (body []byte, contentType string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxFetched+1))
	if err == nil && len(body) > maxFetched {
		err = fmt.Errorf("%s: the answer is larger than %d MiB", url, maxFetched>>20)
	}
	return body, resp.Header.Get("Content-Type"), err
}

// storedNames lists the metric names that a Prometheus-compatible server holds.
func storedNames(ctx context.Context, base string) ([]string, error) {
	body, _, err := fetch(ctx, strings.TrimSuffix(base, "/")+"/api/v1/label/__name__/values")
	if err != nil {
		return nil, err
	}
	var ans struct {
		Status string   `json:"status"`
		Data   []string `json:"data"`
		Error  string   `json:"error"`
	}
	if err := json.Unmarshal(body, &ans); err != nil {
		return nil, err
	}
	if ans.Status != "success" {
		return nil, errors.New(ans.Error)
	}
	return ans.Data, nil
}
