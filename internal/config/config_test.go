package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promconfig "github.com/prometheus/prometheus/config"
	"go.yaml.in/yaml/v3"
)

func TestLoadFull(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load(data, "/etc/x/full.yml")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Prometheus.RuleFiles[0]; got != "/etc/x/rules/*.yml" {
		t.Errorf("rule file %q is not relative to the config", got)
	}
	sc := c.Prometheus.ScrapeConfigs[0]
	if got := sc.HTTPClientConfig.TLSConfig.CAFile; got != "/etc/x/ca.pem" {
		t.Errorf("ca_file %q is not relative to the config", got)
	}
	if time.Duration(sc.ScrapeInterval) != 15*time.Second {
		t.Errorf("interval %v", sc.ScrapeInterval)
	}
	r := c.Rollscope
	if len(r.Signals) != 2 || r.Signals[0].ID != "my_depth" || r.Signals[0].Line != 10 || r.Signals[1].Sources[0].Den[0].Match != `mode="x"` {
		t.Errorf("signals %+v", r.Signals)
	}
	if len(r.Boards) != 1 || len(r.Boards[0].Sections[0].Panels) != 2 {
		t.Errorf("boards %+v", r.Boards)
	}
	if len(r.Engines) != 1 || r.Engines[0].Role != "decode" || r.Alerts[0].Name == "" || r.Webhooks[0].URL == "" {
		t.Errorf("section %+v", r)
	}
	if tr := r.Traces; tr.OTLPGRPC != Off || tr.Sampling.Kind != yaml.MappingNode || len(tr.Forward) != 1 || !tr.Forward[0].All || tr.Forward[0].QueueBytes() != 64<<20 {
		t.Errorf("traces %+v", tr)
	}
	if len(r.Logs) != 1 || r.Logs[0].Path != "/etc/x/logs/*.log" || r.Logs[0].Line == 0 {
		t.Errorf("logs %+v", r.Logs)
	}
	if e := r.Events; e.RetentionTime() != 7*24*time.Hour || e.MaxBytes() != 20<<30 || !e.Fsync || e.MinFreeBytes() != 0 {
		t.Errorf("events %+v", e)
	}
}

// A plain prometheus.yml gives exactly what Prometheus itself makes of it.
func TestLoadPlain(t *testing.T) {
	const plain = "global:\n  scrape_interval: 10s\nscrape_configs:\n  - job_name: slime-sglang\n    metrics_path: /engine_metrics\n    static_configs:\n      - targets:\n          - \"10.0.0.1:3000\"\n"
	dir := t.TempDir()
	p := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(p, []byte(plain), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load([]byte(plain), p)
	if err != nil {
		t.Fatal(err)
	}
	want, err := promconfig.LoadFile(p, false, discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	if c.Prometheus.String() != want.String() {
		t.Errorf("got\n%s\nwant\n%s", c.Prometheus, want)
	}
	for _, empty := range []string{"", "\n# nothing\n", "---\n"} {
		if c, err := Load([]byte(empty), ""); err != nil || c.Prometheus == nil {
			t.Errorf("an empty file %q: %v", empty, err)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	tests := []struct {
		name, text string
		line       int
		want       string
	}{
		{"unknown key of prometheus", "rollscope:\n  webhooks: []\n\nglobal:\n  scrape_intervall: 1s\n", 5, `unknown key "scrape_intervall" in global; did you mean "scrape_interval"`},
		{"unknown top-level key", "global: {}\nrolscope:\n  boards: []\n", 2, `did you mean "rollscope"`},
		{"bad type after the section", "rollscope:\n  boards: []\nscrape_configs: 7\n", 3, "cannot unmarshal"},
		{"bad duration", "rollscope: {}\nglobal:\n  scrape_interval: soon\n", 2, "not a valid duration"},
		{"bad yaml", "global:\n  a: [\nscrape_configs: {}\n", 0, "did not find"},
		{"timeout of one job", "global:\n  scrape_interval: 5s\nrollscope:\n  boards: []\nscrape_configs:\n  - job_name: fine\n  - job_name: bad\n    scrape_timeout: 9s\n", 7, "scrape timeout greater"},
		{"URL as a target", "scrape_configs:\n- job_name: fine\n  static_configs: [{targets: [\"h:1\"]}]\n\n- job_name: bad\n  static_configs: [{targets: [\"http://h:1/metrics\"]}]\n", 5, "not a valid hostname"},
		{"same job twice", "scrape_configs:\n- job_name: a\n- job_name: b\n- job_name: a\n", 4, `job_name "a" is taken by line 2`},
		{"bad rule path", "global: {}\nrule_files:\n- ok.yml\n- \"a*/b*.yml\"\n", 4, "invalid rule file path"},
		{"no such discovery", "scrape_configs:\n- job_name: a\n  ec2_sd_configs: [{}]\n", 3, "not supported"},
		{"misspelt discovery", "scrape_configs:\n- job_name: a\n  fil_sd_configs: [{}]\n", 3, "did you mean file_sd_configs"},
		{"unknown key of ours", "global: {}\nrollscope:\n  signal: []\n", 3, `unknown key "signal" in rollscope; did you mean "signals"`},
		{"unknown nested key", "rollscope:\n  boards:\n    - id: a\n      titel: x\n", 4, `did you mean "title"`},
		{"later section", "rollscope:\n  objectives: []\n", 2, "does not read this section"},
		{"rollouts without a path", "rollscope:\n  rollouts:\n    - run: a\n", 3, "--save-debug-rollout-data"},
		{"rollouts without the placeholder", "rollscope:\n  rollouts:\n    - run: a\n      path: d/rollout.pt\n", 4, "must hold {rollout_id} once"},
		{"placeholder in the directory", "rollscope:\n  rollouts: [{path: \"d{rollout_id}/x.pt\"}]\n", 2, "the directory must not"},
		{"run twice", "rollscope:\n  rollouts:\n    - {run: a, path: \"x/{rollout_id}.pt\"}\n    - {run: a, path: \"y/{rollout_id}.pt\"}\n", 4, "defined twice"},
		{"dataset without a size", "rollscope:\n  rollouts:\n    - path: \"x/{rollout_id}.pt\"\n      datasets: [{name: aime}]\n", 4, "needs name: and samples:"},
		{"wandb without a project", "rollscope:\n  trackers:\n    wandb: {dir: w}\n", 3, "needs dir: and project:"},
		{"serving without a tracker", "rollscope:\n  trackers:\n    serving: true\n", 3, "needs a tracker"},
		{"otlp address without a port", "rollscope:\n  traces:\n    otlp_grpc: somewhere\n", 3, "write HOST:PORT, or off"},
		{"unknown key of traces", "rollscope:\n  traces:\n    otlp_gprc: 127.0.0.1:4317\n", 3, `did you mean "otlp_grpc"`},
		{"forward to nowhere", "rollscope:\n  traces:\n    forward:\n      - endpoint: ftp://h:1\n", 4, "none of http, https, grpc, grpcs"},
		{"forward twice", "rollscope:\n  traces:\n    forward:\n      - endpoint: h:4317\n      - endpoint: h:4317\n", 5, "defined twice"},
		{"logs without a path", "rollscope:\n  logs:\n    - engine: h:1\n", 3, "a file or a pattern"},
		{"logs with half a pattern", "rollscope:\n  logs:\n    - path: \"a[\"\n", 3, "is no pattern"},
		{"no socket", "rollscope:\n  logs:\n    - path: syslog+http://x:1\n", 3, "syslog+tcp://HOST:PORT"},
		{"no such time zone", "rollscope:\n  logs:\n    - path: a.log\n      timezone: Mars/Olympus\n", 4, "time zone database"},
		{"short retention", "rollscope:\n  events:\n    retention: 1h\n", 3, "one day is the least"},
		{"size without sense", "rollscope:\n  events:\n    max_size: big\n", 3, "is not a size"},
		{"a server's retention", "rollscope:\n  events:\n    retention: 30d\n    url: http://h:9428\n", 4, "its own retention"},
		{"no engine's socket", "rollscope:\n  forward_passes:\n    zmq:\n      - endpoint: nats://h:1\n", 4, "is no engine's socket"},
		{"an engine's socket twice", "rollscope:\n  forward_passes:\n    zmq:\n      - endpoint: tcp://h:1\n      - endpoint: tcp://h:1\n", 5, "defined twice"},
		{"unknown key of passes", "rollscope:\n  forward_passes:\n    zmqs: []\n", 3, `did you mean "zmq"`},
		{"unknown key of a pool", "rollscope:\n  forward_passes:\n    pools:\n      decode: {max_kv_token: 5}\n", 4, `did you mean "max_kv_tokens"`},
		{"no such pool", "rollscope:\n  forward_passes:\n    pools:\n      decoding: {gpus: 1}\n", 4, "is not one of prefill, decode"},
		{"a component in two pools", "rollscope:\n  forward_passes:\n    pools:\n      prefill: {components: [a]}\n      decode: {components: [a]}\n", 5, "is in the pool prefill already"},
		{"brokers and channels", "rollscope:\n  forward_passes:\n    plane_zmq: {brokers: [tcp://h:1], channels: [tcp://h:2]}\n", 3, "give brokers:, or channels: and discovery:"},
		{"no discovery", "rollscope:\n  forward_passes:\n    plane_zmq:\n      discovery: consul\n", 4, "neither file:///PATH nor etcd"},
		{"nats without a server", "rollscope:\n  forward_passes:\n    nats: {namespace: d}\n", 3, "url: is missing"},
		{"nats with a user alone", "rollscope:\n  forward_passes:\n    nats: {url: nats://h:1, user: u}\n", 3, "go together"},
		{"a port of a server elsewhere", "rollscope:\n  forward_passes:\n    nats:\n      url: nats://h:1\n      listen: 127.0.0.1:4222\n", 5, "belongs to url: embedded"},
		{"relay to two places", "rollscope:\n  forward_passes:\n    socket: s\n    relay: {bind: tcp://h:1, brokers: [tcp://h:2], namespace: n, component: c}\n", 4, "give one of nats:, bind: and brokers:"},
		{"relay without a namespace", "rollscope:\n  forward_passes:\n    socket: s\n    relay: {bind: tcp://h:1}\n", 4, "namespace: and component: are missing"},
		{"relay of nothing", "rollscope:\n  forward_passes:\n    relay: {bind: tcp://h:1, namespace: n, component: c}\n", 3, "nothing to pass on"},
		{"passes kept too long", "rollscope:\n  forward_passes:\n    retention: 30d\n", 3, "not between 1m and 7d"},
		{"no such trigger", "rollscope:\n  forward_passes:\n    burst: {on: [oom]}\n", 3, `"oom" is not one of gap, restart`},
		{"not a list", "rollscope:\n  signals: {id: x}\n", 2, "must be a list"},
		{"not a mapping", "rollscope: [1]\n", 1, "must be a mapping"},
		{"wrong kind", "rollscope:\n  signals:\n    - id: a\n      kind: gage\n      metric: x\n", 4, `"gage" is not one of`},
		{"missing kind", "rollscope:\n  signals:\n    - id: a\n      metric: x\n", 3, "kind: is missing"},
		{"bad id", "rollscope:\n  signals:\n    - id: A B\n      kind: rate\n      metric: x\n", 3, "needs an id"},
		{"twice the id", "rollscope:\n  signals:\n    - {id: a, kind: rate, metric: x}\n    - {id: a, kind: rate, metric: x}\n", 4, "defined twice"},
		{"share without den", "rollscope:\n  signals:\n    - id: a\n      kind: share\n      sources: [{num: [{metric: x}]}]\n", 5, "den: belongs"},
		{"panel without content", "rollscope:\n  boards:\n    - id: a\n      title: A\n      sections: [{title: s, panels: [{title: p}]}]\n", 3, "needs either signal: or targets:"},
		{"bad webhook", "rollscope:\n  webhooks: [{url: \"hook\"}]\n", 2, "not a URL"},
		{"bad for", "rollscope:\n  alerts: [{name: a, for: 5min}]\n", 2, "for:"},
		{"flow style top level", "{global: {}, rollscope: {}}\n", 1, "block style"},
		{"section twice", "rollscope: {}\nglobal: {}\nrollscope: {}\n", 3, "stands twice"},
		{"no mapping", "- a\n", 1, "must be a mapping"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load([]byte(tt.text), "x.yml")
			if err == nil {
				t.Fatal("no error")
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T is not an *Error: %v", err, err)
			}
			if tt.line != 0 && e.Line != tt.line {
				t.Errorf("line %d, want %d: %v", e.Line, tt.line, err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v does not say %q", err, tt.want)
			}
			if !strings.HasPrefix(err.Error(), "x.yml:") {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
}

// Every error is reported, not only the first.
func TestLoadAllErrors(t *testing.T) {
	_, err := Load([]byte("global:\n  scrape_intervall: 1s\nrollscope:\n  borads: []\n  signal: []\n"), "x.yml")
	if err == nil || strings.Count(err.Error(), "x.yml:") != 3 {
		t.Errorf("want three errors, got %v", err)
	}
}

func TestLoadWarns(t *testing.T) {
	c, err := Load([]byte("global:\n  external_labels: {host: \"${ROLLSCOPE_NO_SUCH_VARIABLE}\"}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "ROLLSCOPE_NO_SUCH_VARIABLE") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

func TestFromFlags(t *testing.T) {
	c, err := FromFlags([]string{"a:30000", "http://b:30000/metrics", "r:3000/engine_metrics", "https://c/metrics", "[::1]:1", "a:30000", "d:1/v1/loads?format=prometheus", "r:3000/workers"}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, sc := range c.Prometheus.ScrapeConfigs {
		b, err := sc.MarshalYAML()
		if err != nil {
			t.Fatal(err)
		}
		_ = b
		got[sc.JobName] = sc.Scheme + " " + sc.MetricsPath + " " + sc.Params.Encode()
		if time.Duration(sc.ScrapeInterval) != 5*time.Second || time.Duration(sc.ScrapeTimeout) != 5*time.Second {
			t.Errorf("%s: interval %v timeout %v", sc.JobName, sc.ScrapeInterval, sc.ScrapeTimeout)
		}
	}
	want := map[string]string{
		"scrape":                            "http /metrics ",
		"scrape_https":                      "https /metrics ",
		"engine_metrics":                    "http /engine_metrics ",
		"scrape_v1_loads_format_prometheus": "http /v1/loads format=prometheus",
	}
	if len(got) != len(want) {
		t.Errorf("jobs %v", got)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("job %s: %q, want %q", k, got[k], v)
		}
	}
	if !strings.Contains(c.Prometheus.String(), "'[::1]:1'") && !strings.Contains(c.Prometheus.String(), "\"[::1]:1\"") {
		t.Errorf("IPv6 target is lost:\n%s", c.Prometheus)
	}
	if len(c.WorkerLists) != 1 || c.WorkerLists[0].URL != "http://r:3000/workers" {
		t.Errorf("worker lists %v", c.WorkerLists)
	}
}

func TestFromFlagsErrors(t *testing.T) {
	for in, want := range map[string]string{
		"host":             "port is missing",
		":30000":           "host is missing",
		"ftp://a:1":        "scheme",
		"a:99999":          "not between",
		"a:x":              "invalid port",
		"http://u:p@a:1":   "config file",
		"10.0.0.1:30000@0": "",
		"":                 "",
		"http://a:1 b:2":   "",
	} {
		if _, err := FromFlags([]string{in}, 0); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--scrape") {
			t.Errorf("%q: %v does not say %q", in, err, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	data, err := os.ReadFile("testdata/full.yml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("rollscope: {}\n---\na: 1\n"))
	f.Add([]byte("a: &x {b: *x}\nrollscope: *x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load(data, "f.yml")
		if err == nil && c.Prometheus == nil {
			t.Error("neither a configuration nor an error")
		}
	})
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestChanges(t *testing.T) {
	load := func(s string) *Config {
		t.Helper()
		c, err := Load([]byte(s), "x.yml")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const old = "global: {scrape_interval: 5s}\nrule_files: [a.yml]\nscrape_configs:\n- job_name: a\n- job_name: b\n- job_name: c\n  metrics_path: /x\nrollscope:\n  alerts: [{name: x, disabled: true}]\n"
	const next = "global: {scrape_interval: 5s}\nrule_files: [b.yml]\nscrape_configs:\n- job_name: a\n- job_name: c\n  metrics_path: /y\n- job_name: d\nrollscope:\n  alerts: [{name: x, disabled: false}]\n"
	if got := load(old).Changes(load(old)); len(got) != 0 {
		t.Errorf("nothing changed: %q", got)
	}
	want := "job c changed; job d added; job b removed; rule_files changed; rollscope.alerts changed"
	if got := strings.Join(load(next).Changes(load(old)), "; "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Paths of rollouts and trackers are relative to the file, as Prometheus's own are.
func TestRolloutPaths(t *testing.T) {
	c, err := Load([]byte(`rollscope:
  rollouts:
    - {path: "dumps/rollout_{rollout_id}.pt", gpus: 8, scalars: tb}
    - {run: other, path: "/abs/{rollout_id}.pt"}
  trackers: {tensorboard: out, wandb: {dir: w, project: p}, serving: true}
`), "conf/rollscope.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, tr := c.Rollscope.Rollouts, c.Rollscope.Trackers
	got := []string{r[0].Path, r[0].Scalars, r[1].Path, r[1].Scalars, tr.TensorBoard, tr.WandB.Dir}
	want := []string{"conf/dumps/rollout_{rollout_id}.pt", "conf/tb", "/abs/{rollout_id}.pt", "", "conf/out", "conf/w"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("path %d: %q, want %q", i, got[i], want[i])
		}
	}
	if r[0].Line != 3 || r[0].GPUs != 8 || !tr.Serving {
		t.Errorf("read as %+v", c.Rollscope)
	}
}
