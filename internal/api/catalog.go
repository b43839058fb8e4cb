package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/signal"
)

func (a *API) getSignals(r *http.Request) (any, error) {
	p := a.params(r, "limit", "after")
	var infos []SignalInfo
	for _, s := range a.Catalog.Signals() {
		infos = append(infos, signalInfo(s))
	}
	infos, next := page(p, infos, func(s SignalInfo) string { return s.ID })
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, infos)
	e.Next = next
	return e, nil
}

// signalInfo describes a signal with the expressions of the fleet's number (p99 of a percentile).
func signalInfo(s signal.Signal) SignalInfo {
	info := SignalInfo{ID: s.ID, Title: s.Title, Short: s.Short, Group: s.Group, Unit: s.Unit, Kind: string(s.Kind),
		Higher: s.Higher, Meaning: s.Meaning, Trap: s.Trap, Custom: s.Custom}
	for _, role := range s.Roles {
		info.Roles = append(info.Roles, string(role))
	}
	q := signal.Query{By: signal.ByFleet, Form: signal.Raw, Quantile: 0.99}
	// A signal of the catalog compiles: the catalog refuses others.
	info.Query, _ = signal.Compile(s, q)
	q.Form = signal.Recorded
	info.Record, _ = signal.Compile(s, q)
	return info
}

func (a *API) getMetrics(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "limit", "after", "query", "stored")
	from, to := p.window()
	only := p.oneOf("stored", "false", "true", "false") == "true"
	if p.err != nil {
		return nil, p.err
	}
	names, err := a.Reader.Names(r.Context(), from, to)
	if err != nil {
		return nil, err
	}
	word := strings.ToLower(p.text("query"))
	var infos []MetricInfo
	for _, m := range metricInfos(a.Catalog, names) {
		if (!only || m.Stored) && (strings.Contains(strings.ToLower(m.Name), word) || strings.Contains(strings.ToLower(m.Meaning), word)) {
			infos = append(infos, m)
		}
	}
	infos, next := page(p, infos, func(m MetricInfo) string { return m.Name })
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, infos)
	e.Next = next
	return e, nil
}

// metricInfos joins what the catalog knows with what the store holds. A stored name that the catalog
// does not know is listed too, as custom: an engine may be newer than we are.
func metricInfos(c Catalog, names []string) []MetricInfo {
	stored := map[string]bool{} // by the catalog's name
	var unknown []string
	for _, n := range names {
		if m, ok := c.Metric(n); ok {
			stored[m.Name] = true
			continue
		}
		unknown = append(unknown, n)
	}
	var infos []MetricInfo
	for _, m := range c.Metrics() {
		if m.Invented && !stored[m.Name] {
			continue // nothing to complete to; /explain knows it
		}
		infos = append(infos, MetricInfo{Name: m.Name, Backend: string(m.Backend), Type: string(m.Type), Unit: m.Unit, Labels: m.Labels,
			Since: m.Since, Till: m.Till, Meaning: m.Meaning, Trap: m.Trap, Use: m.Use, Stored: stored[m.Name]})
	}
	infos = append(infos, families(unknown)...)
	slices.SortStableFunc(infos, func(x, y MetricInfo) int { return strings.Compare(x.Name, y.Name) })
	return infos
}

// families puts the series names of unknown metrics together: x_bucket, x_sum and x_count are x.
func families(names []string) []MetricInfo {
	histograms := map[string]bool{}
	for _, n := range names {
		if family, ok := strings.CutSuffix(n, "_bucket"); ok {
			histograms[family] = true
		}
	}
	var infos []MetricInfo
	for _, n := range names {
		part := false
		for _, suffix := range []string{"_bucket", "_sum", "_count", "_created"} {
			if family, ok := strings.CutSuffix(n, suffix); ok && histograms[family] {
				part = true
			}
		}
		if part {
			continue
		}
		kind := signal.Type("")
		if strings.HasSuffix(n, "_total") {
			kind = signal.Counter
		}
		infos = append(infos, MetricInfo{Name: n, Type: string(kind), Custom: true, Stored: true})
	}
	for h := range histograms {
		infos = append(infos, MetricInfo{Name: h, Type: string(signal.Histogram), Custom: true, Stored: true})
	}
	return infos
}
