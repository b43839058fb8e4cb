// Package config reads rollscope.yaml: a prometheus.yml with one more top-level section, so that a
// plain prometheus.yml is valid and every error names the line of the user's own file. Its entry
// point is [Load]; [FromFlags] makes the same thing out of --scrape flags.
package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	promconfig "github.com/prometheus/prometheus/config"
	"go.yaml.in/yaml/v3"
)

// Config is one configuration, read and checked. It is not written to after Load or FromFlags
// returned, so it may be shared between goroutines.
type Config struct {
	// Prometheus is the Prometheus part; relative paths in it are already joined with Dir.
	Prometheus *promconfig.Config
	// Rollscope is the part under "rollscope:".
	Rollscope Rollscope

	// WorkerLists, Routers and FollowLogs come from flags (FromFlags and serve), not from the file.
	WorkerLists []WorkerList
	Routers     []Router
	FollowLogs  []string // log files of a training run in which a router's address is printed

	Text     []byte   // the file as it was given
	Path     string   // where it came from; "" for flags
	Dir      string   // what relative paths are relative to
	Warnings []string // what the reader should know though it is no error
}

// Rollscope is the section of the same name.
type Rollscope struct {
	Signals  []Signal  `yaml:"signals"`
	Boards   []Board   `yaml:"boards"`
	Engines  []Engine  `yaml:"engines"`
	Alerts   []Alert   `yaml:"alerts"`
	Webhooks []Webhook `yaml:"webhooks"`
	Rollouts []Rollout `yaml:"rollouts"`
	Trackers Trackers  `yaml:"trackers"`
	Traces   Traces    `yaml:"traces"`
	Logs     []LogFile `yaml:"logs"`
	Events   Events    `yaml:"events"`

	ForwardPasses ForwardPasses `yaml:"forward_passes"`
	// Planner holds the settings of NVIDIA Dynamo's planner under their own names, see package planner; its Kind is 0
	// without any.
	Planner yaml.Node `yaml:"planner"`
}

// Rollout is a run whose dumps are watched.
type Rollout struct {
	// Run is the run's name; empty for one that is made of the directory's.
	Run string `yaml:"run"`
	// Path is slime's --save-debug-rollout-data: a path with {rollout_id} in it. Dumps of evaluations
	// (rollout_eval_7.pt) are found beside those of training.
	Path string `yaml:"path"`
	// GPUs that generate (slime's --rollout-num-gpus); 0 leaves throughput per GPU unknown.
	GPUs int `yaml:"gpus"`
	// Scalars is where the trainer writes: a TensorBoard directory, or a W&B run's directory or file.
	Scalars string `yaml:"scalars"`
	// RewardKey and RewardCategory are slime's --reward-key and --log-reward-category.
	RewardKey      string `yaml:"reward_key"`
	RewardCategory string `yaml:"reward_category"`
	// SamplesPerPrompt is slime's --n-samples-per-prompt, for pass@k; 0 takes the size of the groups.
	SamplesPerPrompt int `yaml:"samples_per_prompt"`
	// Speculative says that the engines decode speculatively (slime's --sglang-speculative-algorithm).
	Speculative bool `yaml:"speculative"`
	// Datasets of an evaluation dump, in its order: slime does not write which sample is of which.
	Datasets []Dataset `yaml:"datasets"`
	Line     int       `yaml:"-"`
}

// Dataset is one dataset of an evaluation.
type Dataset struct {
	Name    string `yaml:"name"`
	Samples int    `yaml:"samples"`
}

// Trackers are where the metrics of each step go, once a step.
type Trackers struct {
	TensorBoard string `yaml:"tensorboard"` // directory; one run a subdirectory
	WandB       *WandB `yaml:"wandb"`
	// Serving adds a summary of the engines over the step under serving/: KV use, queue, GPU memory.
	Serving bool `yaml:"serving"`
	// Strict turns a metric that a tracker would refuse into an error of the step.
	Strict bool `yaml:"strict"`
}

// WandB is an offline run of Weights & Biases.
type WandB struct {
	Dir     string   `yaml:"dir"`
	Project string   `yaml:"project"`
	Entity  string   `yaml:"entity"`
	Group   string   `yaml:"group"`
	Tags    []string `yaml:"tags"`
	// Sync starts `wandb sync` after each step where that program is installed. Nothing is sent otherwise.
	Sync bool `yaml:"sync"`
}

// Signal adds a signal to the catalog; see the signal package for what the words mean.
type Signal struct {
	ID      string   `yaml:"id"`
	Title   string   `yaml:"title"`
	Short   string   `yaml:"short"`
	Group   string   `yaml:"group"`
	Unit    string   `yaml:"unit"`
	Kind    string   `yaml:"kind"` // quantile, rate, level, share, worst
	Higher  bool     `yaml:"higher_is_better"`
	Meaning string   `yaml:"meaning"`
	Trap    string   `yaml:"trap"`
	Roles   []string `yaml:"roles"`
	// Metric, Match and Ranks are short for one source with one term.
	Metric  string   `yaml:"metric"`
	Match   string   `yaml:"match"`
	Ranks   string   `yaml:"ranks"`
	Sources []Source `yaml:"sources"`
	Line    int      `yaml:"-"` // in the file
}

// Source is one way to compute a signal: Num (over Den, of a share), or Metric with Match and Ranks
// for a single term.
type Source struct {
	Backend  string  `yaml:"backend"`
	Name     string  `yaml:"name"`
	Metric   string  `yaml:"metric"`
	Match    string  `yaml:"match"`
	Ranks    string  `yaml:"ranks"`
	Num      []Term  `yaml:"num"`
	Den      []Term  `yaml:"den"`
	Scale    float64 `yaml:"scale"`
	Caveat   string  `yaml:"caveat"`
	Fallback bool    `yaml:"fallback"`
}

// Term selects series of one metric.
type Term struct {
	Metric string `yaml:"metric"`
	Match  string `yaml:"match"` // PromQL matchers without braces
	Ranks  string `yaml:"ranks"` // leader, all, or empty
}

// Board adds a dashboard.
type Board struct {
	ID       string    `yaml:"id"`
	Title    string    `yaml:"title"`
	Meaning  string    `yaml:"meaning"`
	Sections []Section `yaml:"sections"`
	Line     int       `yaml:"-"`
}

// Section is a titled row of panels.
type Section struct {
	Title  string  `yaml:"title"`
	Panels []Panel `yaml:"panels"`
}

// Panel is one chart or number: of a signal, or of PromQL expressions.
type Panel struct {
	ID      string        `yaml:"id"`
	Title   string        `yaml:"title"`
	Unit    string        `yaml:"unit"`
	View    string        `yaml:"view"` // lines, stat, gauge, table
	Meaning string        `yaml:"meaning"`
	Signal  string        `yaml:"signal"`
	By      string        `yaml:"by"` // fleet, engine, role, model
	Targets []PanelTarget `yaml:"targets"`
	Min     *float64      `yaml:"min"`
	Max     *float64      `yaml:"max"`
}

// PanelTarget is one PromQL expression of a panel.
type PanelTarget struct {
	Expr   string `yaml:"expr"`
	Legend string `yaml:"legend"`
}

// Engine overrides what was found out about an engine.
type Engine struct {
	Instance string   `yaml:"instance"` // host:port as scraped
	Aliases  []string `yaml:"aliases"`  // other addresses and names that mean it
	Role     string   `yaml:"role"`     // unified, prefill, decode, encode, router, frontend
	Name     string   `yaml:"name"`
	Line     int      `yaml:"-"`
}

// Alert changes or switches off a built-in alert; what is empty stays as it is.
type Alert struct {
	Name        string            `yaml:"name"`
	Disabled    bool              `yaml:"disabled"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"` // a Prometheus duration: "5m"
	Severity    string            `yaml:"severity"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
	Line        int               `yaml:"-"`
}

// Webhook gets every firing and resolved alert as JSON.
type Webhook struct {
	URL string `yaml:"url"`
}

// WorkerList is a router's list of workers to scrape directly: the URL whose answer is that list.
type WorkerList struct {
	URL string // http://HOST:PORT/workers or /list_workers
}

// Router is the address of an SGLang router; its /engine_metrics is scraped.
type Router struct {
	Host string
	Port int
}

// Error is what is wrong with a configuration file and where.
type Error struct {
	Path string // "" when not from a file
	Line int    // 1-based; 0 when not known
	Msg  string // what is wrong and what to do
	Err  error  // the cause; may be nil
}

// Error gives "path:line: message".
func (e *Error) Error() string {
	where := e.Path
	if where == "" {
		where = "config"
	}
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d", where, e.Line)
	}
	return where + ": " + e.Msg
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Load reads a configuration. path is used in errors and for its directory, against which relative
// paths (rule files, file discovery, certificates) are resolved; it is not opened. All errors are
// reported together: the result of errors.Join over *Error.
func Load(data []byte, path string) (*Config, error) {
	doc, err := parse(data, path)
	if err != nil {
		return nil, err
	}
	var errs []error
	c := &Config{Text: bytes.Clone(data), Path: path, Dir: "."}
	if path != "" {
		c.Dir = filepath.Dir(path)
	}
	errs = append(errs, doc.discoveryErrors()...)
	if len(errs) == 0 {
		var warnings []string
		c.Prometheus, warnings, err = loadPrometheus(doc)
		c.Warnings = append(c.Warnings, warnings...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	r, rerrs := doc.rollscope()
	errs = append(errs, rerrs...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c.Rollscope = r
	c.Prometheus.SetDirectory(c.Dir)
	return c, nil
}

// loadPrometheus hands the text without the rollscope section to Prometheus's own loader.
func loadPrometheus(doc *document) (*promconfig.Config, []string, error) {
	var said collector
	cfg, err := promconfig.Load(string(doc.without(doc.section)), slog.New(&said))
	if err != nil {
		return nil, said.lines, doc.locate(err)
	}
	return cfg, said.lines, nil
}

// collector is a slog handler that keeps what the loader says at warning level.
type collector struct{ lines []string }

func (c *collector) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (c *collector) WithAttrs([]slog.Attr) slog.Handler           { return c }
func (c *collector) WithGroup(string) slog.Handler                { return c }
func (c *collector) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value)
		return true
	})
	c.lines = append(c.lines, b.String())
	return nil
}

// DefaultInterval is how often flags' targets are scraped when no interval is given.
const DefaultInterval = 10 * time.Second
