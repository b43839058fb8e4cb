package metricstore

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/rollscope/rollscope/internal/signal"
)

func loadConfig(t testing.TB, text string) *promconfig.Config {
	t.Helper()
	cfg, err := promconfig.Load(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newRules(t testing.TB, s *Store, o RulesOptions) *Rules {
	t.Helper()
	o.Appendable, o.Queryable, o.Engine, o.Drops = s.Appendable(), s.Queryable(), s.Engine(), s.Dropped
	if o.Now == nil {
		o.Now = s.opts.Now
	}
	r, err := NewRules(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// receiver keeps the webhook messages it gets; it answers with the codes given, then 200.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	codes []int
	got   []webhookMessage
}

func newReceiver(t *testing.T, codes ...int) *receiver {
	r := &receiver{codes: codes}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		b, _ := io.ReadAll(req.Body)
		if len(r.codes) > 0 {
			w.WriteHeader(r.codes[0])
			r.codes = r.codes[1:]
			return
		}
		var m webhookMessage
		if err := json.Unmarshal(b, &m); err != nil {
			t.Errorf("body %s: %v", b, err)
		}
		r.got = append(r.got, m)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) statuses() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, m := range r.got {
		for _, a := range m.Alerts {
			out = append(out, a.Status+" "+a.Labels["instance"])
		}
	}
	return strings.Join(out, ", ")
}

func TestWebhook(t *testing.T) {
	now := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, now))
	flaky := newReceiver(t, 500, 503) // fails twice
	refusing := newReceiver(t, 400, 400, 400, 400)
	r := newRules(t, s, RulesOptions{Retry: time.Millisecond, Now: func() time.Time { return now }})
	cfg := loadConfig(t, "")
	if err := r.Apply(cfg, nil, []string{flaky.URL + "/hook?token=secret", refusing.URL}); err != nil {
		t.Fatal(err)
	}
	if urls := r.Webhooks(); strings.Contains(urls[0], "secret") || len(urls) != 2 {
		t.Errorf("webhooks %v", urls)
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	alert := func(instance string, resolved bool) *rules.Alert {
		a := &rules.Alert{
			Labels:      labels.FromStrings("alertname", "EngineDown", "severity", "critical", "instance", instance),
			Annotations: labels.FromStrings("summary", "down"), FiredAt: now,
		}
		if resolved {
			a.ResolvedAt = now.Add(time.Minute)
		}
		return a
	}
	r.notify(ctx, "up == 0", alert("e1", false), alert("e2", false))
	r.notify(ctx, "up == 0", alert("e1", false), alert("e2", false)) // the manager repeats each minute
	r.notify(ctx, "up == 0", alert("e1", true), alert("e3", true))   // e3 was never told
	waitFor(t, func() bool { return flaky.statuses() == "firing e1, firing e2, resolved e1" })
	flaky.mu.Lock()
	m := flaky.got[0]
	flaky.mu.Unlock()
	if m.Version != "4" || m.Status != "firing" || m.CommonLabels["severity"] != "critical" || m.CommonLabels["instance"] != "" ||
		m.GroupLabels["alertname"] != "EngineDown" || m.Alerts[0].Fingerprint == m.Alerts[1].Fingerprint {
		t.Errorf("message %+v", m)
	}
	now = now.Add(5 * time.Hour)
	r.notify(ctx, "up == 0", alert("e2", false)) // again after four hours
	waitFor(t, func() bool {
		return strings.HasSuffix(flaky.statuses(), "firing e2") && strings.Count(flaky.statuses(), "e2") == 2
	})
	waitFor(t, func() bool { return len(s.Drops()) > 0 })
	for _, d := range s.Drops() {
		if d.Reason != "refused" || !strings.Contains(d.Source, refusing.URL) {
			t.Errorf("drop %+v", d)
		}
	}
	stop()
	done.Wait()
}

func TestWebhookQueueIsBounded(t *testing.T) {
	now := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, now))
	r := newRules(t, s, RulesOptions{QueueCapacity: 2})
	if err := r.Apply(loadConfig(t, ""), nil, []string{"http://127.0.0.1:1/"}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // nobody delivers: Run was not called
		r.hooks.send("up == 0", []*rules.Alert{{Labels: labels.FromStrings("alertname", "A", "instance", fmt.Sprint(i)), FiredAt: now}})
	}
	wantDrop(t, s, "webhook http://127.0.0.1:1/", "queue_full", 3)
	r.stopSD()
}

// A message that is being delivered does not go for want of room: it would be counted as lost, and its alerts told
// a second time.
func TestWebhookQueueFullWhileDelivering(t *testing.T) {
	now := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, now))
	begun, goOn := make(chan struct{}), make(chan struct{})
	got := make(chan webhookMessage, 10)
	first := true
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var m webhookMessage
		if err := json.NewDecoder(req.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		if first {
			first = false
			close(begun)
			<-goOn
		}
		got <- m
	}))
	defer srv.Close()
	r := newRules(t, s, RulesOptions{QueueCapacity: 2})
	if err := r.Apply(loadConfig(t, ""), nil, []string{srv.URL}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	send := func(instance string) {
		r.hooks.send("up == 0", []*rules.Alert{{Labels: labels.FromStrings("alertname", "A", "instance", instance), FiredAt: now}})
	}
	send("e1")
	<-begun
	for _, instance := range []string{"e2", "e3", "e1"} { // e2 makes room; e1 is on its way
		send(instance)
	}
	wantDrop(t, s, "webhook "+srv.URL, "queue_full", 1)
	close(goOn)
	for _, want := range []string{"e1", "e3"} {
		if m := <-got; m.Alerts[0].Labels["instance"] != want {
			t.Errorf("told of %v, want %s", m.Alerts, want)
		}
	}
	hook := r.hooks.all[0]
	waitFor(t, func() bool { hook.mu.Lock(); defer hook.mu.Unlock(); return len(hook.queue) == 0 }) // else it is delivered once more at the stop
	stop()
	done.Wait()
	if len(got) > 0 {
		t.Errorf("told again: %v", <-got)
	}
}

func TestRulesRunAndNotifyAlertmanager(t *testing.T) {
	bin, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Skip("Debian's prometheus-alertmanager is not installed")
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "am.yml")
	hook := newReceiver(t)
	if err := os.WriteFile(conf, []byte("route: {receiver: hook, group_wait: 0s, group_interval: 1s}\nreceivers: [{name: hook, webhook_configs: [{url: '"+hook.URL+"'}]}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	am := exec.Command(bin, "--config.file="+conf, "--storage.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
	addr, wait := startServer(t, am)
	defer func() { _ = am.Process.Kill(); wait() }()
	waitFor(t, func() bool {
		res, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
	http.DefaultClient.CloseIdleConnections()

	s := openStore(t, testOptions(t, time.Time{})) // Alertmanager has the real clock
	up := func(v float64) {
		appendPoints(t, s.Appendable(), point{`up{job="sglang",instance="e1"}`, time.Now().UnixMilli(), v})
	}
	up(0)
	r := newRules(t, s, RulesOptions{ResendDelay: time.Second})
	file := filepath.Join(dir, "own.yml")
	if err := os.WriteFile(file, []byte("groups: [{name: own, interval: 200ms, rules: [{alert: Own, expr: 'up == 0'}]}]"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := loadConfig(t, "rule_files: ['"+file+"']\nalerting: {alertmanagers: [{static_configs: [{targets: ['"+addr+"']}]}]}\nglobal: {evaluation_interval: 1s}\n")
	builtIn := []RuleFile{{"built-in alerts", []byte("groups: [{name: b, interval: 200ms, rules: [{record: 'engine:n', expr: 'count(up)'}, {alert: EngineDown, expr: 'up == 0', labels: {severity: critical}}]}]")}}
	if err := r.Apply(cfg, builtIn, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, func() bool { return strings.Count(hook.statuses(), "firing e1") >= 2 })
	if got := r.Source("built-in alerts"); got != "built-in" {
		t.Errorf("source %q", got)
	}
	if got := eval(t, s.Engine(), s.Queryable(), "engine:n", time.Now()); got[`engine:n`] == 0 && len(got) != 1 {
		t.Errorf("recorded %v", got)
	}
	up(1)
	waitFor(t, func() bool { return strings.Contains(hook.statuses(), "resolved e1") })
	stop()
	done.Wait()
}

// startServer starts one of Prometheus's servers on a port of its own choice, and returns where it says that it
// listens and what waits for its end. A port that is looked for beforehand may be another's by then.
func startServer(t *testing.T, cmd *exec.Cmd) (address string, wait func()) {
	t.Helper()
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	at, ended := make(chan string, 1), make(chan struct{})
	var said strings.Builder
	go func() {
		defer close(ended)
		told := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, addr, ok := strings.Cut(lines.Text(), `msg="Listening on" address=`); ok && !told {
				told = true
				at <- addr
			}
			fmt.Fprintln(&said, lines.Text())
		}
		_ = cmd.Wait() // it is killed
	}()
	select {
	case address = <-at:
	case <-ended:
		t.Fatalf("%s ended:\n%s", cmd.Path, said.String())
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		t.Fatalf("%s does not say where it listens:\n%s", cmd.Path, said.String())
	}
	return address, func() { <-ended }
}

func TestBadRules(t *testing.T) {
	s := openStore(t, testOptions(t, time.Unix(1780000000, 0)))
	r := newRules(t, s, RulesOptions{})
	defer r.stopSD()
	good := []RuleFile{{"good", []byte("groups: [{name: g, rules: [{record: a, expr: up}]}]")}}
	if err := r.Apply(loadConfig(t, ""), good, nil); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func() error{
		"built-in:1": func() error {
			return r.Apply(loadConfig(t, ""), []RuleFile{{"built-in", []byte("groups: [{name: g, rules: [{record: a, expr: 'up +'}]}]")}}, nil)
		},
		"not an http": func() error { return r.Apply(loadConfig(t, ""), good, []string{"ftp://x"}) },
	} {
		if err := bad(); err == nil || !strings.Contains(err.Error(), strings.Split(name, ":")[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.EvalAt(context.Background(), time.Unix(1780000020, 0)); err != nil {
		t.Errorf("after refusals the good rules are gone: %v", err)
	}
}

func TestBlindRules(t *testing.T) { // case M11
	now := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, now))
	ps := readExposition(t, filepath.Join("testdata", "M11", "vllm-new.prom"), now.Add(-time.Minute).UnixMilli(), "job", "vllm", "instance", "v:8000")
	ps = append(ps, point{`sglang:gone{instance="e"}`, now.Add(-time.Hour).UnixMilli(), 1}, point{`up{job="vllm",instance="v:8000"}`, now.UnixMilli(), 1})
	appendPoints(t, s.Appendable(), ps...)
	r := newRules(t, s, RulesOptions{})
	defer r.stopSD()
	for _, c := range []struct {
		expr  string
		blind bool
	}{
		{`up == 0`, false},
		{`vllm:kv_cache_usage_perc > 0.9`, false},
		{`vllm_kv_cache_usage_perc > 0.9`, false},  // any spelling
		{`vllm:gpu_cache_usage_perc > 0.9`, false}, // answered by its successor
		{`sglang:token_usage > 0.9`, true},         // never there
		{`sglang:gone > 0`, true},                  // an hour ago
		{`sglang:token_usage > 0.9 or vllm:kv_cache_usage_perc > 0.9`, false},
		{`sum(rate(sglang:num_aborted_requests_total[5m])) / sum(rate(vllm:request_time_per_output_token_seconds_count[5m])) > 1`, true},
		{`(sum(sglang:token_usage) or vector(0)) > 1`, true}, // a default is no data
		{`absent(sglang:token_usage)`, false},                // judged by absence
		{`up == 0 unless sglang:token_usage > 1`, false},
		{`engine:kv > 0.9`, false}, // recorded from what is there, though empty
		{`engine:none > 0.9`, true},
		{`{__name__=~"sglang:token_usage|vllm:kv_cache_usage_perc"} > 0.9`, false},
		{`max_over_time(vllm:kv_cache_usage_perc[10m:1m]) > 1`, false},
		{`vector(1)`, false},
	} {
		text := fmt.Sprintf("groups:\n- name: g\n  rules:\n  - {record: 'engine:kv', expr: 'vllm:kv_cache_usage_perc > 2'}\n  - {record: 'engine:none', expr: 'sglang:token_usage'}\n  - alert: A\n    expr: %q\n", c.expr)
		if err := r.Apply(loadConfig(t, ""), []RuleFile{{"b", []byte(text)}}, nil); err != nil {
			t.Fatalf("%s: %v", c.expr, err)
		}
		if err := r.EvalAt(context.Background(), now); err != nil {
			t.Fatal(err)
		}
		blind, err := r.BlindRules(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if (len(blind) == 1) != c.blind {
			t.Errorf("%s: blind %+v, want %v", c.expr, blind, c.blind)
		}
	}
}

func TestRecordedAndRawMeet(t *testing.T) {
	start := time.Unix(1780000020, 0).Truncate(15 * time.Second)
	now := start.Add(40 * time.Minute)
	s := openStore(t, testOptions(t, now))
	r := newRules(t, s, RulesOptions{})
	defer r.stopSD()
	cat := signal.Default()
	if err := r.Apply(loadConfig(t, "global: {evaluation_interval: 15s}"), []RuleFile{{"recording", signal.RecordingRules(cat)}, {"alerts", signal.AlertRules(cat)}}, nil); err != nil {
		t.Fatal(err)
	}
	// Two engines; rules run in the last quarter only, as after an upgrade.
	for i := range 160 {
		at := start.Add(time.Duration(i) * 15 * time.Second)
		var ps []point
		for e := range 2 {
			ls := fmt.Sprintf(`{job="sglang",instance="e%d:1",model_name="m",engine_type="unified"`, e)
			n := float64(i * 10 * (e + 1))
			for _, b := range [][2]any{{"0.1", 0.2}, {"1.0", 0.9}, {"+Inf", 1.0}} {
				ps = append(ps, point{fmt.Sprintf(`sglang:time_to_first_token_seconds_bucket%s,le="%s"}`, ls, b[0]), at.UnixMilli(), n * b[1].(float64)})
			}
			ps = append(ps, point{"sglang:time_to_first_token_seconds_count" + ls + "}", at.UnixMilli(), n},
				point{"sglang:num_queue_reqs" + ls + `,tp_rank="0",pp_rank="0",priority=""}`, at.UnixMilli(), float64(e)},
				point{"sglang:num_running_reqs" + ls + `,tp_rank="0",pp_rank="0",priority=""}`, at.UnixMilli(), float64(e)},
				point{fmt.Sprintf(`up{job="sglang",instance="e%d:1"}`, e), at.UnixMilli(), 1})
		}
		if n := appendPoints(t, s.Appendable(), ps...); n > 0 {
			t.Fatalf("%d refused", n)
		}
		if i >= 120 && i%2 == 1 {
			if err := r.EvalAt(context.Background(), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := start.Add(159 * 15 * time.Second)
	rd := NewReader(s.Queryable(), s.Engine(), ReaderOptions{Now: func() time.Time { return now }})
	for _, c := range []struct {
		id   string
		by   signal.By
		from time.Duration // before the end
		form string
		line int
	}{
		{"ttft", signal.ByFleet, 30 * time.Minute, "mixed", 2},
		{"ttft", signal.ByEngine, 30 * time.Minute, "mixed", 4},
		{"ttft", signal.ByFleet, 8 * time.Minute, "recorded", 2},
		{"queue_depth", signal.ByFleet, 30 * time.Minute, "mixed", 1},
		{"queue_depth", signal.ByEngine, 8 * time.Minute, "recorded", 2},
		{"ttft", signal.ByModel, 8 * time.Minute, "recorded", 2},
		{"ttft", signal.ByRole, 8 * time.Minute, "recorded", 2},
	} {
		t.Run(fmt.Sprint(c.id, c.by, c.from), func(t *testing.T) {
			res := read(t, rd, SignalRequest{ID: c.id, By: c.by, From: end.Add(-c.from), To: end, Step: time.Minute})
			if res.Form != c.form || len(res.Lines) != c.line || res.State != StateValue {
				t.Errorf("form %s, %d lines, %s", res.Form, len(res.Lines), res.State)
			}
			for _, l := range res.Lines {
				for i, v := range l.Values {
					if v == nil {
						t.Errorf("%s has no value at step %d of %d", l.Name, i, len(l.Values))
						break
					}
				}
			}
			if len(res.Unknown) > 0 || len(res.Idle) > 0 {
				t.Errorf("unknown %v idle %v", res.Unknown, res.Idle)
			}
			if c.id == "ttft" {
				if n := res.Lines[0].Now; n.Lower == nil || *n.Lower != 0.1 || *n.Upper != 1 || *n.ShareAbove < 0.09 {
					t.Errorf("p50 %s", showNumber(n))
				}
			}
			if c.by == signal.ByFleet && (res.Worst == nil || c.id == "queue_depth" && res.Worst.Instance != "e1:1") {
				t.Errorf("worst %+v", res.Worst)
			}
		})
	}
	one := read(t, rd, SignalRequest{ID: "queue_depth", By: signal.ByEngine, Instance: "e1:1", From: end.Add(-10 * time.Minute), To: end, Step: time.Minute})
	if len(one.Lines) != 1 || *one.Lines[0].Now.Value != 1 {
		t.Errorf("one engine: %+v", one.Lines)
	}
	// recorded series look back over the signal's own window: another one is read from what was scraped
	for window, form := range map[time.Duration]string{0: "recorded", 5 * time.Minute: "recorded", 20 * time.Minute: "raw"} {
		if res := read(t, rd, SignalRequest{ID: "ttft", From: end, To: end, Step: time.Minute, Window: window}); res.Form != form {
			t.Errorf("window %s: form %s", window, res.Form)
		}
	}
	if res := read(t, rd, SignalRequest{ID: "queue_depth", From: end, To: end, Step: time.Minute, Window: 20 * time.Minute}); res.Form != "recorded" {
		t.Errorf("a level has no window: form %s", res.Form)
	}
	// before anything was recorded
	early := read(t, rd, SignalRequest{ID: "ttft", From: start.Add(-time.Hour), To: start.Add(-30 * time.Minute), Step: time.Minute})
	if early.State != StateUnknown || len(early.Unknown) != 1 || early.Unknown[0].Reason != "nothing was recorded" {
		t.Errorf("early: %s %+v", early.State, early.Unknown)
	}
}

func TestJudgeOfEveryNode(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	for _, expr := range []string{`-up`, `(up)`, `1 + 1`, `time()`, `topk(3, up)`, `sum by (a) (up)`, `rate(up[5m:1m] offset 5m)`, `up @ end()`} {
		e, err := p.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		j := judge{known: map[string]evidence{}, recorded: map[string][]parser.Expr{"up": {mustParse(t, "1")}}}
		if got := j.expr(e, 0); got == missing {
			t.Errorf("%s: missing", expr)
		}
	}
}

func mustParse(t *testing.T, s string) parser.Expr {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAlertStateIsTakenUp(t *testing.T) {
	s := openStore(t, testOptions(t, time.Time{}))
	now := time.Now()
	// What the process before wrote, until two minutes ago: the alert is pending for half an hour.
	appendPoints(t, s.Appendable(),
		point{`ALERTS_FOR_STATE{alertname="Slow",job="sglang",instance="e1"}`, now.Add(-2 * time.Minute).UnixMilli(), float64(now.Add(-30 * time.Minute).Unix())},
		point{`up{job="sglang",instance="e1"}`, now.UnixMilli(), 0})
	r := newRules(t, s, RulesOptions{})
	file := []RuleFile{{"built-in", []byte("groups: [{name: b, interval: 100ms, rules: [{alert: Slow, expr: 'up == 0', for: 1h}]}]")}}
	if err := r.Apply(loadConfig(t, ""), file, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, func() bool {
		for _, a := range r.Manager().AlertingRules() {
			for _, active := range a.ActiveAlerts() {
				if active.ActiveAt.Before(now.Add(-20 * time.Minute)) {
					return true
				}
			}
		}
		return false
	})
	stop()
	done.Wait()
}
