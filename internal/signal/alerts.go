package signal

import (
	"fmt"
	"maps"
	"slices"
)

// Alert is one built-in alert, in Prometheus's terms.
type Alert struct {
	Name        string
	Expr        string
	For         string // a Prometheus duration
	Severity    string // the label severity: "info", "warning", "critical", "page"
	Labels      map[string]string
	Annotations map[string]string
	// Meaning says what the expression does that a plain threshold would not.
	Meaning string
}

// Alerts are the built-in alerts. They read recorded series, so they select engines by the program that
// was recognised and not by the job's name, hold once per engine however it is seen, and have no sample
// where nothing happens. An alert that fires for an engine goes on firing while that engine is lost.
func Alerts() []Alert {
	sglang := `{backend="sglang"}`
	threshold := func(name, severity, duration, summary, expr, meaning string) Alert {
		return Alert{
			Name: name, For: duration, Severity: severity, Meaning: meaning,
			Annotations: map[string]string{"summary": summary},
			Expr:        expr + " or " + held(name),
		}
	}
	return []Alert{
		threshold("SGLangTTFTHigh", "warning", "2m", "SGLang TTFT p99 > 1s on {{ $labels.instance }}",
			"engine:ttft:p99_rate5m"+sglang+" > 1",
			"No sample while no request is answered."),
		threshold("SGLangTPOTHigh", "warning", "5m", "SGLang TPOT p99 > 100ms on {{ $labels.instance }}",
			"engine:itl:p99_rate5m"+sglang+" > 0.1",
			"No sample while no token is generated."),
		threshold("SGLangCacheHitDrop", "warning", "10m", "SGLang cache hit rate dropped < 20%",
			fmt.Sprintf("avg_over_time(engine:cache_hit_rate_num:rate5m%[1]s[10m]) / (avg_over_time(engine:cache_hit_rate_den:rate5m%[1]s[10m]) > 1) < 0.2", sglang),
			"Counts tokens instead of reading the gauge, which every decode report sets to 0. More than one prompt token per second is wanted, which also leaves out engines that have only the gauge (their denominator is 1)."),
		threshold("SGLangQueueBuildup", "critical", "5m", "SGLang queue depth > 100 sustained — capacity?",
			"avg_over_time(engine:queue_depth"+sglang+"[5m]) > 100",
			"Adds the DP ranks of an engine and counts priorities once."),
		threshold("SGLangAbortRateHigh", "critical", "5m", "SGLang aborting requests on {{ $labels.instance }}",
			"engine:aborts:rate5m"+sglang+" > 1",
			"Abort calls: one abort_all counts once."),
		threshold("SGLangKVPoolFull", "warning", "5m", "KV pool > 95% used — evict storm likely",
			"engine:kv_usage"+sglang+" > 0.95",
			"The fullest rank of the engine; num_used_tokens over max_total_num_tokens where token_usage is missing."),
		{
			Name: "SGLangDown", For: "1m", Severity: "page", Expr: LostSeries + sglang,
			Annotations: map[string]string{"summary": "SGLang instance {{ $labels.instance }} is DOWN"},
			Meaning:     "Any engine that was seen within the last hour and is not now, under any job, directly or through a router, also one that left service discovery; while it stays a target and down, without end.",
		},
		threshold("SGLangSpecAcceptRateLow", "info", "15m", "Spec decoding accept rate < 0.5 — negative optimization?",
			fmt.Sprintf("avg_over_time(engine:spec_accept_rate_num:rate5m%[1]s[10m]) / (avg_over_time(engine:spec_accept_rate_den:rate5m%[1]s[10m]) > 0) < 0.5", sglang),
			"Only engines with speculative decoding switched on."),
		logAlert("EngineOutOfMemory", "critical", "0s", "oom", "0", "Memory ran out on {{ or $labels.engine $labels.source }}",
			"Lines such as CUDA out of memory, in the log of any engine; one traceback counts once."),
		logAlert("EngineHang", "page", "0s", "hang", "0", "{{ or $labels.engine $labels.source }} hangs: a watchdog, a collective or a health check timed out",
			"The line that says what timed out counts, not those that follow from it."),
		logAlert("EngineRetractionStorm", "warning", "2m", "preempt", "25", "Requests are thrown out of the batch on {{ or $labels.engine $labels.source }}: the KV cache is too small for what is admitted",
			"More than five retractions a minute, also where retractions are in no metric."),
		{
			Name: "ForwardPassesBlind", For: "0s", Severity: "warning", Expr: "max by (source) (rollscope_fpm_blind) == 1",
			Annotations: map[string]string{"summary": "Forward passes of {{ $labels.source }} do not come, or cannot be read, though the engine works"},
			Meaning:     "The stream was judged against what the engine's metrics say; `GET /api/rollscope/v1/passes` has the cause and what to do. An idle engine and one that says nothing of its work are no alarm.",
		},
		{
			Name: "ForwardPassesLost", For: "1m", Severity: "warning", Expr: risen(lostPasses(""), lostPasses(" offset 5m")) + " > 0",
			Annotations: map[string]string{"summary": "{{ $value }} messages about forward passes of {{ $labels.component }} {{ $labels.worker_id }}, rank {{ $labels.dp_rank }}, were lost in 5 min"},
			Meaning:     "Missing by the engine's or the plane's own numbers, less those that came late after all. No sample where messages have no numbers.",
		},
		{
			Name: "PlannerModelChanged", For: "0s", Severity: "warning", Expr: "max by (namespace, component) (increase(rollscope_planner_model_changes_total[10m])) > 0",
			Annotations: map[string]string{"summary": "Passes of the {{ $labels.component }} pool of {{ $labels.namespace }} take longer or shorter than passes like them took before"},
			Meaning:     "Compared with passes that did about the same work, so another load is no change. What the planner says of capacity rests on the few passes since.",
		},
	}
}

// lostPasses is how many messages of a rank were lost so far. The name of its engine is no part of a rank: it
// may become known later.
func lostPasses(offset string) string {
	return fmt.Sprintf("max by (namespace, component, worker_id, dp_rank) (rollscope_fpm_missing_total%[1]s - rollscope_fpm_filled_total%[1]s)", offset)
}

// risen is by how much a count is above what it was; of one that is new all counts.
func risen(now, before string) string {
	return fmt.Sprintf("((%[1]s - %[2]s) or (%[1]s unless %[2]s))", now, before)
}

// LogEvents is the counter of log lines by class of event, which this program writes of the logs it reads.
const LogEvents = "rollscope_log_events_total"

// logAlert fires when more than some log lines of a class came within five minutes. Of a counter that is
// new all counts: an engine may die in its first lines.
func logAlert(name, severity, duration, class, more, summary, meaning string) Alert {
	c := fmt.Sprintf(`%s{class=%q}`, LogEvents, class)
	return Alert{
		Name: name, For: duration, Severity: severity, Meaning: meaning + " Lines that came ten minutes after they were written do not count.",
		Annotations: map[string]string{"summary": summary},
		Expr: fmt.Sprintf(`label_replace(sum by (engine, source) ((%[1]s unless %[1]s offset 5m) or increase(%[1]s[5m])) > %[2]s, "instance", "$1", "engine", "(.+)")`,
			c, more),
	}
}

// held is the engines for which an alert fires and which are lost.
func held(alert string) string {
	return fmt.Sprintf(`(max without (alertname, alertstate, severity) (ALERTS{alertname=%q,alertstate="firing"}) and on (instance) %s)`, alert, LostSeries)
}

// AlertRules is the rule file, in YAML, of the built-in alerts; it needs the series of [RecordingRules].
func AlertRules(c *Catalog) []byte { return WriteAlerts(Alerts()) }

// WriteAlerts writes alerts as a rule file: [Alerts], changed by whoever has something to change.
func WriteAlerts(alerts []Alert) []byte {
	g := ruleGroup{Name: "sglang", Interval: RuleInterval}
	for _, a := range alerts {
		labels := maps.Clone(a.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		if a.Severity != "" {
			labels["severity"] = a.Severity
		}
		g.Rules = append(g.Rules, rule{Alert: a.Name, Expr: a.Expr, For: a.For, Labels: labels, Annotations: a.Annotations})
	}
	return writeRules("Made by Rollscope: its built-in alerts, over the series of its recording rules.", slices.Clip([]ruleGroup{g}))
}
