package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/gauge"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/rollscope/rollscope/internal/signal"
)

// GrafanaOptions says for which data a Grafana board is made.
type GrafanaOptions struct {
	// Recorded takes the series that our recording rules make, which is cheap over long ranges; the
	// rules must run where the data are. Otherwise the scraped series are read.
	Recorded bool
	// OneSpelling takes the engines' own names only (sglang:x), which is right for Rollscope, whose store
	// answers to every spelling. A foreign Prometheus holds what was scraped: sglang:x from an engine
	// asked for text, sglang_x from one asked for OpenMetrics, and sglang_x from a router.
	OneSpelling bool
}

// UID is the board's uid in Grafana.
func UID(b Board) string { return "rollscope-" + b.ID }

// Grafana gives the board as the JSON of a Grafana dashboard, schema 42 (Grafana 11 and later). It
// names no datasource: the variables datasource, job, instance and model choose, and each of the last
// three may be All, one or several. The same board and options give the same bytes. b must come from [Boards].
func Grafana(cat *signal.Catalog, b Board, o GrafanaOptions) ([]byte, error) {
	q := newQueries(cat, o)
	uid := UID(b)
	//lint:ignore SA1019 the newer schema is read by Grafana 12 and later only; what people run reads this one
	d := grafana.NewDashboardBuilder(b.Title).
		Uid(uid).
		Description(b.Meaning).
		Tags(append([]string{"rollscope"}, b.Tags...)).
		Editable().
		Tooltip(grafana.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").
		Timezone("browser").
		Refresh("15s").
		Version(1).
		Link(grafana.NewDashboardLinkBuilder("Rollscope").
			Type(grafana.DashboardLinkTypeDashboards).Tags([]string{"rollscope"}).
			AsDropdown(true).IncludeVars(true).KeepTime(true))
	id := uint32(0)
	var names []string
	type placed struct {
		row    string
		panels []cog.Builder[grafana.Panel]
	}
	var rows []placed
	for _, s := range b.Sections {
		r := placed{row: s.Title}
		width := panelWidth(len(s.Panels))
		for _, p := range s.Panels {
			id++
			panel, used, err := q.panel(p, id, width)
			if err != nil {
				return nil, fmt.Errorf("board %q: %w", b.ID, err)
			}
			names = append(names, used...)
			r.panels = append(r.panels, panel)
		}
		rows = append(rows, r)
	}
	vars, err := q.variables(names)
	if err != nil {
		return nil, fmt.Errorf("board %q: %w", b.ID, err)
	}
	d.Variables(vars)
	for _, r := range rows {
		id++
		d.WithRow(grafana.NewRowBuilder(r.row).Id(id))
		for _, p := range r.panels {
			d.WithPanel(p)
		}
	}
	built, err := d.Build()
	if err != nil {
		return nil, fmt.Errorf("board %q cannot be written for Grafana: %w", b.ID, err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(built); err != nil {
		return nil, fmt.Errorf("board %q cannot be written for Grafana: %w", b.ID, err)
	}
	return out.Bytes(), nil
}

// panelWidth is the width of a panel, of 24 columns, in a section of n panels.
func panelWidth(n int) uint32 {
	if n <= 2 || n == 4 {
		return 12
	}
	return 8
}

const panelHeight = 8

func datasourceRef() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

// panel builds one panel and lists the metric names that it reads.
func (q queries) panel(p Panel, id, width uint32) (cog.Builder[grafana.Panel], []string, error) {
	var names []string
	var built []cog.Builder[grafanaQuery]
	if p.Problem != "" {
		return nil, nil, fmt.Errorf("panel %q: %s", p.Title, p.Problem)
	}
	for i, t := range p.Targets {
		text, used, err := q.query(p, t)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, used...)
		query := prometheus.NewDataqueryBuilder().
			Expr(text).LegendFormat(t.Legend).RefId(refID(i)).Datasource(datasourceRef()).
			EditorMode(prometheus.QueryEditorModeCode)
		switch p.View {
		case Stat, Gauge:
			query.Instant()
		case Table:
			query.Instant().Format(prometheus.PromQueryFormatTable)
		default:
			query.Range()
		}
		built = append(built, query)
	}
	unit := grafanaUnit(p.Unit)
	thresholds := grafana.NewThresholdsConfigBuilder().Mode(grafana.ThresholdsModeAbsolute).Steps(steps(p.Thresholds))
	switch p.View {
	case Stat:
		b := stat.NewPanelBuilder().Id(id).Title(p.Title).Description(q.description(p)).Datasource(datasourceRef()).
			Unit(unit).Thresholds(thresholds).Span(width).Height(panelHeight).NoValue("no events").Targets(built).
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
			GraphMode(common.BigValueGraphModeNone)
		return limits(b, p, b.Min, b.Max), names, nil
	case Gauge:
		b := gauge.NewPanelBuilder().Id(id).Title(p.Title).Description(q.description(p)).Datasource(datasourceRef()).
			Unit(unit).Thresholds(thresholds).Span(width).Height(panelHeight).NoValue("no data").Targets(built).
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
		return limits(b, p, b.Min, b.Max), names, nil
	case Table:
		b := table.NewPanelBuilder().Id(id).Title(p.Title).Description(q.description(p)).Datasource(datasourceRef()).
			Unit(unit).Thresholds(thresholds).Span(width).Height(panelHeight).Targets(built)
		return b, names, nil
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.Title).Description(q.description(p)).Datasource(datasourceRef()).
		Unit(unit).Thresholds(thresholds).Span(width).Height(panelHeight).NoValue("no events").Targets(built).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementBottom).ShowLegend(true).Calcs([]string{"lastNotNull", "max"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		// A gap means that nothing happened; a line through it would be a lie.
		SpanNulls(common.BoolOrFloat64{Bool: cog.ToPtr(false)}).
		ShowPoints(common.VisibilityModeAuto).
		LineWidth(1)
	if p.Stacked {
		b.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	if len(p.Thresholds) > 0 {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	return limits(b, p, b.Min, b.Max), names, nil
}

// limits sets the ends of the axis that the panel fixes.
func limits[B any](b B, p Panel, lower, upper func(float64) B) B {
	if p.Min != nil {
		lower(*p.Min)
	}
	if p.Max != nil {
		upper(*p.Max)
	}
	return b
}

// refID names queries as Grafana does: A, B, … Z, AA, …
func refID(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return refID(i/26-1) + refID(i%26)
}

var levelColor = map[Level]string{OK: "green", Warn: "orange", Crit: "red"}

// steps turns thresholds into Grafana's: each colour holds from its value up.
func steps(ts []Threshold) []grafana.Threshold {
	var lower, upper []Threshold
	for _, t := range ts {
		if t.Below {
			lower = append(lower, t)
		} else {
			upper = append(upper, t)
		}
	}
	byValue := func(a, b Threshold) int { return cmp.Compare(a.Value, b.Value) }
	slices.SortFunc(lower, byValue)
	slices.SortFunc(upper, byValue)
	color := OK
	if len(lower) > 0 {
		color = lower[0].Level
	}
	out := []grafana.Threshold{{Color: levelColor[color]}}
	for i, t := range lower {
		next := OK
		if i+1 < len(lower) {
			next = lower[i+1].Level
		}
		out = append(out, grafana.Threshold{Value: bound(t.Value), Color: levelColor[next]})
	}
	for _, t := range upper {
		out = append(out, grafana.Threshold{Value: bound(t.Value), Color: levelColor[t.Level]})
	}
	return out
}

// grafanaUnits translates the catalog's units. What is missing is written behind the
// number as it is.
var grafanaUnits = map[string]string{
	"seconds": "s", "milliseconds": "ms", "microseconds": "µs", "nanoseconds": "ns",
	"ratio": "percentunit", "percent": "percent",
	"tokens/s": "si:tok/s", "requests/s": "reqps", "1/s": "cps", "events/s": "cps",
	"bytes": "bytes", "bytes/s": "binBps", "KiB": "kbytes", "MiB": "mbytes", "GiB": "gbytes", "MB": "decmbytes", "GB": "decgbytes",
	"GiB/s": "GiBs", "GB/s": "GBs",
	"watts": "watt", "celsius": "celsius", "MHz": "rotmhz", "joules": "joule",
	"MiB/s": "MiBs", "1": "short", "requests": "short", "tokens": "short", "blocks": "short", "pages": "short", "": "short",
}

func grafanaUnit(unit string) string {
	if u, ok := grafanaUnits[unit]; ok {
		return u
	}
	return "suffix:" + unit
}
