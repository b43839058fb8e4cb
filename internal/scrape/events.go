package scrape

import (
	"fmt"
	"strings"
	"time"
)

// scraped takes the report of one scrape, after its commit.
func (m *Manager) scraped(a *appender, commitErr error) {
	t := a.t
	t.handOn(a)
	failed := t.prom.LastError()
	url := t.url()

	t.mu.Lock()
	defer t.mu.Unlock()
	refused := t.appended
	if t.bad.lenient && t.bad.err != nil {
		failed, refused = t.bad.err, false
	}
	t.appended, t.appendErr = false, nil
	t.scrapes++
	t.samples = a.samples
	m.clock(t, a)
	for reason, n := range a.dropped {
		m.drop(t, reason, n)
	}
	if commitErr != nil {
		m.log.Warn("a scrape could not be stored", "target", t, "err", commitErr)
	}

	was, wasReason := t.up, t.reason
	switch {
	case a.up == 1 && a.samples > 0:
		up := true
		t.up, t.everUp = &up, true
		if t.reason != ReasonNone && t.lastBad != "" {
			m.log.Info("the target is read again", "target", t)
		}
		t.reason, t.message, t.hint, t.lastBad = ReasonNone, "", "", ""
		m.processesOf(t, a)
		switch {
		case !t.identified || was == nil || (!*was && wasReason != ReasonTimeout):
			m.prober.want(t, probeIdentify)
		case a.added > 0:
			m.prober.want(t, probeInspect)
		}
	case a.up == 1:
		t.up = nil
		if t.reason != ReasonNoMetricsYet {
			m.fail(t, noMetricsYet())
			m.prober.want(t, probeInspect)
		}
	default:
		up := false
		t.up = &up
		f := classifyError(failed, refused, url)
		switch f.reason {
		case ReasonSampleLimit:
			m.drop(t, dropSampleLimit, int64(a.samples))
		case ReasonLabelLimit:
			m.drop(t, dropLabelLimit, 1)
		case ReasonBadLine:
			m.drop(t, dropBadAnswer, 1)
		}
		switch {
		case !answered(f.reason):
			// There was no answer to look at: asking again would only be more load.
			m.fail(t, f)
		case f.reason != t.reason && !(f.reason == ReasonBadLine && t.reason == ReasonNotAnExposition):
			// What the answer was is asked again by the prober; until then the words of the error
			// stand. Its own judgement, which has seen the body, is kept while the reason is the same.
			t.reason, t.message, t.hint = f.reason, f.message, f.hint
			m.prober.want(t, probeFailure)
		default:
			m.prober.want(t, probeAgain)
		}
	}
}

// answered tells whether a failure has a body that says more.
func answered(r Reason) bool {
	return strings.HasPrefix(string(r), "http_") || r == ReasonBadLine || r == ReasonNotAnExposition || r == ReasonContentType
}

// fail records a state and logs it once. t.mu is held.
func (m *Manager) fail(t *target, f failure) {
	t.reason, t.message, t.hint = f.reason, f.message, f.hint
	key := string(f.reason) + f.message
	if key == t.lastBad {
		return
	}
	t.lastBad = key
	args := []any{"target", t, "reason", string(f.reason), "error", f.message}
	if f.hint != "" {
		args = append(args, "hint", f.hint)
	}
	if f.reason == ReasonNoMetricsYet {
		m.log.Info("the target has no metrics yet", args...)
		return
	}
	m.log.Warn("the target cannot be read", args...)
}

// clock notices that this machine's clock went back, from the times of consecutive scrapes.
func (m *Manager) clock(t *target, a *appender) {
	last := t.lastAt
	t.lastAt = a.at
	if last == 0 || a.at >= last {
		return
	}
	step := time.Duration(a.at-last) * time.Millisecond
	lost := a.dropped[dropOutOfOrder] + a.dropped[dropTooOld]
	f := Finding{Code: "clock_stepped_back", Level: LevelInfo,
		Message: fmt.Sprintf("the clock went back by %s between two scrapes; all samples were stored out of order", -step.Round(time.Millisecond)),
		Hint:    "has a time service corrected this machine's clock?"}
	if lost > 0 {
		f.Level = LevelWarn
		f.Message = fmt.Sprintf("the clock stepped by about %s: samples are refused until it has caught up, unless they fit the out-of-order window", step.Round(time.Second))
		f.Hint = "correct the clock, or raise storage.tsdb.out_of_order_time_window in the config"
	}
	t.dropFindings("clock_stepped_back")
	t.addFinding(f)
	if lost > 0 {
		m.log.Warn("samples are refused: the clock went back", "target", t, "step", step.Round(time.Millisecond).String(), "dropped", lost, "hint", f.Hint)
	} else {
		m.log.Info("the clock went back; samples are stored out of order", "target", t, "step", step.Round(time.Millisecond).String())
	}
}

// processesOf looks at whether one process answers. t.mu is held.
func (m *Manager) processesOf(t *target, a *appender) {
	for i := range a.refs {
		if a.refs[i] == 0 || a.got[i] {
			continue
		}
		// The series is no longer written: another takes its place when one is seen first.
		t.procs.counters[i] = lineage{}
		t.scan.Lock()
		t.refs[i] = 0
		t.scan.Unlock()
	}
	v := t.procs.observe(a.values, a.got)
	if v.restarted {
		t.identified = false
	}
	if v.alternating == 0 {
		t.dropFindings("alternating")
		return
	}
	f := Finding{Code: "alternating", Level: LevelWarn,
		Message: fmt.Sprintf("target alternates between %d processes: a load balancer stands before it, and every change looks like a counter reset", v.alternating),
		Hint:    "rates of this target are wrong; scrape each replica at its own address"}
	if t.addFinding(f) {
		m.log.Warn(f.Message, "target", t, "hint", f.Hint)
	}
}

// duplicate takes a series that stood twice in one answer; Prometheus kept the first value.
func (m *Manager) duplicate(t *target, series string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.drop(t, dropDuplicateSeries, 1)
	if t.once("duplicate:" + series) {
		m.prober.want(t, probeDuplicate)
	}
}

// tooNew takes a sample whose own time is too far ahead; it would block its series until then.
func (m *Manager) tooNew(t *target, series string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.drop(t, dropTooNew, 1)
	f := Finding{Code: "too_new", Level: LevelWarn, Series: series,
		Message: fmt.Sprintf("%s carries a time more than 10 minutes ahead of this machine's clock and is refused: stored, it would block the series until then", series),
		Hint:    "which of the two clocks is wrong?"}
	if t.once("too_new") {
		t.addFinding(f)
		m.log.Warn("samples from the future are refused", "target", t, "series", series, "hint", f.Hint)
	}
}

// wrongContentType takes an answer that does not say that it is an exposition.
func (m *Manager) wrongContentType(t *target, got any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, _ := got.(string)
	if !t.once("content_type:" + s) {
		return
	}
	what := fmt.Sprintf("the answer says it is %q", s)
	if s == "" {
		what = "the answer does not say what it is (no Content-Type)"
	}
	t.addFinding(Finding{Code: "content_type", Level: LevelInfo, Message: what + "; it is read as the Prometheus text format",
		Hint: "a proxy may have taken the header away"})
}
