package rollout

// EvalDataset is a dataset of an evaluation and how many of the dump's samples are of it.
type EvalDataset struct {
	Name             string
	Samples          int
	NSamplesPerGroup int // [n_samples_per_eval_prompt] of the dataset; 0 is MetricOptions.NSamplesPerPrompt
}

// unknownDataset is where samples count whose dataset nothing tells.
const unknownDataset = "unknown"

// dataset is the name of the sample's dataset, "" when it is not known: what the sample says, else what
// EvalDatasets says of its place in the dump. slime writes the samples of all datasets one after another
// and no name.
func (m *Metrics) dataset(s *Sample) string {
	if s.Dataset != "" {
		return s.Dataset
	}
	at := m.place
	m.place++
	for _, d := range m.opts.EvalDatasets {
		if at < d.Samples {
			return d.Name
		}
		at -= d.Samples
	}
	return ""
}

// maxDatasets bounds the keys that one dump may make; further datasets count as unknown.
const maxDatasets = 256

func (m *Metrics) datasetAcc(name string) *rolloutAcc {
	if name == "" || m.datasets[name] == nil && len(m.datasets) >= maxDatasets {
		name = unknownDataset
	}
	a := m.datasets[name]
	if a == nil {
		a = newRolloutAcc(name, &m.opts)
		for _, d := range m.opts.EvalDatasets {
			if d.Name == name && d.NSamplesPerGroup > 0 {
				a.pass.size = d.NSamplesPerGroup
			}
		}
		m.datasets[name] = a
		m.order = append(m.order, a)
	}
	return a
}

// evalResult is what slime's log_eval_rollout_data logs of an evaluation, and what we publish.
func (m *Metrics) evalResult(r *MetricsResult) {
	order := m.order
	if !m.opts.Eval { // the dump itself said that it is one, after its samples were added
		if a := m.datasets[unknownDataset]; len(order) == 0 || a == nil && m.all.n > countAll(order) {
			order = []*rolloutAcc{m.all}
		}
	}
	for _, a := range order {
		name := a.name
		if name == "" {
			name = unknownDataset
		}
		c := &emitter{prefix: "eval/" + name, doc: "eval", slime: true}
		if name == unknownDataset {
			r.CompatFailed = append(r.CompatFailed, MetricFailure{"eval", "the dump does not say which dataset a sample is of; give names and counts"})
		} else if err := a.evalCompat(c, name, m.opts.LogPassrate); err != "" {
			r.CompatFailed = append(r.CompatFailed, MetricFailure{"eval/" + name, err})
		} else {
			r.Compat = append(r.Compat, c.out...)
		}

		e := &emitter{prefix: "eval/" + name, doc: "eval"}
		if a.rewardKnown == 0 {
			e.unknown("", "no sample has a reward that is a number; a dict needs reward_key")
		} else {
			e.part("", a.rewardSum.total()/float64(a.rewardKnown), a.rewardKnown, a.n, "samples have a reward")
		}
		in := &emitter{prefix: "eval/" + name + "/", doc: "rollout/"}
		a.published(in)
		in.count("sample_count", a.n)
		e.out = append(e.out, in.out...)
		a.evalSuffixes(e, m.opts.LogPassrate)
		r.Perf = append(r.Perf, e.out...)
	}
}

func countAll(accs []*rolloutAcc) (n int) {
	for _, a := range accs {
		n += a.n
	}
	return n
}

// evalCompat is one dataset's keys; it returns what slime raises.
func (a *rolloutAcc) evalCompat(e *emitter, name string, passrate bool) (err string) {
	if a.rewardBad != "" {
		return a.rewardBad
	}
	e.put("", a.rewardSum.total()/float64(a.n))
	in := &emitter{prefix: "eval/" + name + "/", doc: "rollout/", slime: true}
	if err := a.compat(in); err != "" {
		return err
	}
	e.out = append(e.out, in.out...)
	return a.evalSuffixes(e, passrate)
}

func (a *rolloutAcc) evalSuffixes(e *emitter, passrate bool) (err string) {
	e.put("-truncated_ratio", float64(a.truncated)/float64(a.n))
	if passrate {
		in := &emitter{prefix: e.prefix + "-", doc: "passrate/", slime: e.slime}
		if e.slime {
			err = a.passRates(in)
		} else {
			a.publishedRates(in)
		}
		e.out = append(e.out, in.out...)
	}
	return err
}
