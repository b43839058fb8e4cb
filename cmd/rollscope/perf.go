package main

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/rollout"
)

func addPerf(a *kingpin.Application, e *env) {
	var (
		o                   app.PerfOptions
		m                   = &o.Metrics
		compat, asJSON, all bool
		keys, datasets      []string
	)
	cmd := a.Command("perf", "The metrics of a step, out of its rollout dump.").HelpLong(`
  rollscope perf rollout_7.pt --gpus 64 --rollout-time 612
  rollscope perf dumps/ --key 'perf_step/*' --json
  rollscope perf rollout_7.pt --compat          what slime itself publishes, key by key
`)
	cmd.Arg("file", "Dumps, or directories of dumps.").Required().StringsVar(&o.Files)
	cmd.Flag("gpus", "GPUs that generate (slime's --rollout-num-gpus); without them throughput per GPU is unknown.").IntVar(&m.GPUs)
	cmd.Flag("rollout-time", "Seconds that the rollout took; without it the extent of the traces counts, and is marked.").Float64Var(&m.RolloutTime)
	cmd.Flag("compat", "Slime's values, key by key, its omissions included.").BoolVar(&compat)
	cmd.Flag("json", "One JSON object a file and line, all views in it.").BoolVar(&asJSON)
	cmd.Flag("all", "Keys whose value is unknown too.").BoolVar(&all)
	cmd.Flag("key", "Only keys that fit this pattern (repeatable).").PlaceHolder("GLOB").StringsVar(&keys)
	cmd.Flag("train", "What a rank of the trainer wrote of the step (slime's --save-debug-train-data, or JSON); joined by sample index (repeatable).").PlaceHolder("SHARD").StringsVar(&o.Train)
	cmd.Flag("salvage", "Of a file that was cut, count what is there.").BoolVar(&o.Salvage)
	cmd.Flag("reward-key", "Entry of a dict reward that counts (slime's --reward-key).").StringVar(&m.RewardKey)
	cmd.Flag("reward-category", "Entry of a dict reward to count samples by (slime's --log-reward-category).").StringVar(&m.RewardCategory)
	cmd.Flag("advantage-estimator", "Slime's --advantage-estimator; ppo has no groups.").StringVar(&m.AdvantageEstimator)
	cmd.Flag("speculative", "The engines draft tokens (slime's --sglang-speculative-algorithm).").BoolVar(&m.SpecDecoding)
	cmd.Flag("passrate", "Pass@k too (slime's --log-passrate).").BoolVar(&m.LogPassrate)
	cmd.Flag("samples-per-prompt", "Group size of pass@k (slime's --n-samples-per-prompt).").IntVar(&m.NSamplesPerPrompt)
	cmd.Flag("dataset", "Dataset of an evaluation and how many samples it has, in the order of the dump (repeatable).").PlaceHolder("NAME=N").StringsVar(&datasets)
	cmd.Action(func(*kingpin.ParseContext) error {
		if m.GPUs < 0 || m.RolloutTime < 0 {
			return badInput("--gpus and --rollout-time cannot be negative")
		}
		for _, d := range datasets {
			name, count, _ := strings.Cut(d, "=")
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 || name == "" {
				return badInput("--dataset %q: write NAME=N, with N the number of its samples", d)
			}
			m.EvalDatasets = append(m.EvalDatasets, rollout.EvalDataset{Name: name, Samples: n})
		}
		for _, k := range keys {
			if _, err := path.Match(k, ""); err != nil {
				return badInput("--key %q: %w", k, err)
			}
		}
		var err error
		if o.Files, err = app.DumpFiles(o.Files); err != nil {
			return badInput("%w", err)
		}
		results, err := app.Perf(e.ctx, o)
		if err != nil {
			return badInput("%w", err)
		}
		p := perfPrinter{e: e, compat: compat, all: all, keys: keys}
		if asJSON {
			err = p.lines(results)
		} else {
			err = p.table(results)
		}
		if err != nil {
			return err
		}
		return p.failures(results)
	})
}

type perfPrinter struct {
	e           *env
	compat, all bool
	keys        []string
}

// view is the metrics of one file that are wanted.
func (p perfPrinter) view(r *rollout.MetricsResult) []rollout.Metric {
	list := r.Compat
	if !p.compat {
		list = append(append([]rollout.Metric(nil), r.Perf...), r.PerfStep...)
	}
	var out []rollout.Metric
	for _, m := range list {
		if p.wants(m.Key) && (p.all || m.State != rollout.MetricUnknown) {
			out = append(out, m)
		}
	}
	return out
}

func (p perfPrinter) wants(key string) bool {
	if len(p.keys) == 0 {
		return true
	}
	for _, k := range p.keys {
		// A star goes over slashes: perf_step/* are all of them.
		if ok, _ := path.Match(strings.ReplaceAll(k, "/", "\x00"), strings.ReplaceAll(key, "/", "\x00")); ok {
			return true
		}
	}
	return false
}

func (p perfPrinter) lines(results []app.PerfResult) error {
	enc := json.NewEncoder(p.e.out)
	enc.SetEscapeHTML(false)
	for _, r := range results {
		line := struct {
			File    string                 `json:"file"`
			Error   string                 `json:"error,omitempty"`
			Opaque  []string               `json:"opaque_classes,omitempty"`
			Train   []string               `json:"training,omitempty"`
			Metrics *rollout.MetricsResult `json:"metrics"`
		}{File: r.File, Opaque: r.Opaque, Train: r.Train, Metrics: r.Result}
		if r.Err != nil {
			line.Error = r.Err.Error()
		}
		if r.Result != nil && len(p.keys) > 0 {
			some := *r.Result
			some.Compat, some.Perf, some.PerfStep = p.some(some.Compat), p.some(some.Perf), p.some(some.PerfStep)
			line.Metrics = &some
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func (p perfPrinter) some(list []rollout.Metric) []rollout.Metric {
	out := []rollout.Metric{}
	for _, m := range list {
		if p.wants(m.Key) {
			out = append(out, m)
		}
	}
	return out
}

// table has one column a file; with one file its notes stand beside the values.
func (p perfPrinter) table(results []app.PerfResult) error {
	var order []string
	byKey := map[string]map[int]rollout.Metric{}
	var files []int
	for i, r := range results {
		if r.Result == nil {
			continue
		}
		files = append(files, i)
		for _, m := range p.view(r.Result) {
			if byKey[m.Key] == nil {
				byKey[m.Key] = map[int]rollout.Metric{}
				order = append(order, m.Key)
			}
			byKey[m.Key][i] = m
		}
	}
	if len(files) == 0 {
		return nil
	}
	t := newTable(p.e.out)
	if len(files) == 1 {
		r := results[files[0]]
		fmt.Fprintln(p.e.out, title(r))
		t.head("KEY", ">VALUE", "UNIT", "NOTE")
		for _, k := range order {
			m := byKey[k][files[0]]
			t.row(k, cell(m), m.Unit, m.Note)
		}
		return t.flush()
	}
	head := []string{"KEY"}
	for _, i := range files {
		head = append(head, ">"+strings.TrimSuffix(filepath.Base(results[i].File), filepath.Ext(results[i].File)))
	}
	t.head(append(head, "UNIT")...)
	for _, k := range order {
		row, unit := []string{k}, ""
		for _, i := range files {
			m, ok := byKey[k][i]
			if !ok {
				row = append(row, "-")
				continue
			}
			row, unit = append(row, cell(m)), m.Unit
		}
		t.row(append(row, unit)...)
	}
	return t.flush()
}

func title(r app.PerfResult) string {
	kind := "train"
	if r.Result.Kind == rollout.Eval {
		kind = "eval"
	}
	s := r.File + ": " + kind
	if r.Result.RolloutID.OK {
		s += fmt.Sprintf(" step %d", r.Result.RolloutID.N)
	}
	return s + fmt.Sprintf(", %d samples", r.Result.Samples)
}

// cell is a value or the word for its absence; ~ marks a derived value, * a partial one.
func cell(m rollout.Metric) string {
	if m.State == rollout.MetricIdle || m.State == rollout.MetricUnknown {
		return m.State.String()
	}
	s := formatFloat(m.Value)
	if m.Derived {
		s = "~" + s
	}
	if m.State == rollout.MetricPartial {
		s += "*"
	}
	return s
}

// failures says on stderr what could not be read; the exit code then is that of bad input.
func (p perfPrinter) failures(results []app.PerfResult) error {
	bad := false
	for _, r := range results {
		if len(r.Opaque) > 0 {
			fmt.Fprintf(p.e.err, "%s: classes that are not here, shown as data: %s\n", r.File, strings.Join(r.Opaque, ", "))
		}
		for _, s := range r.Train {
			fmt.Fprintf(p.e.err, "%s: %s\n", r.File, s)
		}
		if r.Result != nil && p.compat {
			for _, f := range r.Result.CompatFailed {
				fmt.Fprintf(p.e.err, "%s: slime fails in %s and publishes nothing of it: %s\n", r.File, f.Part, f.Error)
			}
		}
		if r.Err != nil {
			bad = true
			fmt.Fprintf(p.e.err, "%s\n", named(r.File, r.Err))
		}
	}
	if bad {
		return &exitError{code: exitBadInput}
	}
	return nil
}

// named puts the file before an error that does not name it.
func named(file string, err error) string {
	if s := err.Error(); strings.Contains(s, filepath.Base(file)) {
		return s
	}
	return file + ": " + err.Error()
}
