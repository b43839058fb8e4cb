package dashboard

// Code is a kind of finding.
type Code struct {
	Code    string `json:"code"`
	Meaning string `json:"meaning"`
}

// Codes lists every kind of finding with one sentence on why it matters, sorted.
func Codes() []Code {
	return []Code{
		{"absent_part", "A name is not in the data, but the expression has another way to its number."},
		{"bare_histogram", "A histogram is read under its bare name, which has no samples."},
		{"better_metric", "The metric misleads for this purpose; another one or a signal answers better."},
		{"blind", "Nothing that was looked at has the name: the query stays empty, the alert never fires."},
		{"cache_hit_rate_gauge", "The gauge holds the last prefill batch only and is set to 0 by every decode report."},
		{"component_is_not_role", "A Dynamo component is taken for a role; prefill numbers leak into decode."},
		{"counter_without_rate", "A counter is read as it stands: it grows for ever and falls to 0 at a restart."},
		{"dead_metric", "The metric is emitted and never set."},
		{"delta_of_counter", "delta() or deriv() of a counter goes below 0 at a restart."},
		{"hard_coded_datasource", "The board is tied to a datasource that only its author's Grafana has."},
		{"idle_division", "The quotient is 0/0 while nothing happens."},
		{"invented_name", "No program ever emitted the name."},
		{"label_dropped", "An alert's text prints a label that the expression aggregates away."},
		{"label_spelling", "le or quantile is matched in a spelling that is not stored."},
		{"matches_nothing", "No series has the label value that is matched."},
		{"multi_value_equals", "A variable that can hold several values is compared with = instead of =~."},
		{"no_expression", "The expression is empty."},
		{"not_a_bound", "The matched le is no bound of the histogram."},
		{"not_a_quantile", "The matched quantile is none that the summary has."},
		{"parse_error", "PromQL cannot be read, perhaps only with some values of the board's variables."},
		{"percent_of_ratio", "A share from 0 to 1 is shown with unit percent."},
		{"percentile_averaged", "Percentiles are averaged; the result is no percentile."},
		{"percentile_summed", "Percentiles are added; the result is no percentile."},
		{"priority_summed", "Priorities and their total are added."},
		{"quantile_of_non_bucket", "histogram_quantile gets something else than buckets."},
		{"quantile_out_of_range", "The quantile is not between 0 and 1."},
		{"quantile_without_le", "The aggregation drops le before histogram_quantile."},
		{"ranks_summed", "Ranks of one engine that count the same events are added."},
		{"rate_of_gauge", "rate() or increase() of a gauge."},
		{"rate_of_sum", "rate() of an aggregate cannot see restarts."},
		{"ratio_averaged", "Ratios are averaged, whatever stands behind each."},
		{"ratio_of_percent", "A number from 0 to 100 is shown with unit percentunit."},
		{"ratio_summed", "Shares of different wholes are added."},
		{"renamed", "The metric has a newer name, which newer versions emit instead."},
		{"unit_mismatch", "The panel's unit is not that of the number."},
		{"unknown_variable", "The board has no variable of that name."},
		{"unreadable", "The file is no rule file or no dashboard."},
		{"views_summed", "An engine seen directly and through a router is added twice."},
	}
}

// explain is the sentence of a code, "" for none.
func explain(code string) string {
	for _, c := range Codes() {
		if c.Code == code {
			return c.Meaning
		}
	}
	return ""
}
