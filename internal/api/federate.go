package api

import (
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"google.golang.org/protobuf/proto"
)

// federate answers with the newest sample of every series that a match[] selects, as Prometheus's
// /federate does, so that a Prometheus can take over what it wants. Native histograms are left out.
func (a *API) federate(w http.ResponseWriter, r *http.Request) {
	if e := a.notReady(); e != nil {
		refuse(w, faceOurs, e)
		return
	}
	const form = "one or more series selectors, such as match[]={__name__=~\"sglang:.*\"}"
	wanted := r.URL.Query()["match[]"]
	selectors, err := parser.NewParser(parser.Options{}).ParseMetricSelectors(wanted)
	if err != nil || len(selectors) == 0 {
		problem := "is missing"
		if err != nil {
			problem = "is no selector: " + err.Error()
		}
		refuse(w, faceOurs, badParameter("match[]", strings.Join(wanted, ","), problem, form))
		return
	}
	samples, err := a.newest(r, selectors)
	if err != nil {
		refuse(w, faceOurs, failure(r, err))
		return
	}
	external := map[string]string{}
	conf := a.Prometheus.Config()
	conf.GlobalConfig.ExternalLabels.Range(func(l labels.Label) { external[l.Name] = l.Value })
	if _, ok := external[model.InstanceLabel]; !ok {
		external[model.InstanceLabel] = "" // so that the asking Prometheus does not put ours there
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.NewFormat(expfmt.TypeTextPlain), expfmt.NewFormat(expfmt.TypeProtoDelim))
	w.Header().Set("Content-Type", string(format))
	enc := expfmt.NewEncoder(w, format)
	for len(samples) > 0 {
		name := samples[0].name
		n := 1
		for n < len(samples) && samples[n].name == name {
			n++
		}
		if err := enc.Encode(family(samples[:n], external)); err != nil {
			a.log.Debug("the reader of /federate left", "err", err)
			return
		}
		samples = samples[n:]
	}
}

type newestSample struct {
	name   string
	labels labels.Labels
	t      int64
	v      float64
}

// newest returns the last sample of each series within the lookback, sorted by name and labels.
func (a *API) newest(r *http.Request, selectors [][]*labels.Matcher) ([]newestSample, error) {
	now := a.clock(r.Context())
	from, to := now.Add(-a.Prometheus.LookbackDelta).UnixMilli(), now.UnixMilli()
	q, err := a.Prometheus.Queryable.Querier(from, to)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	hints := &storage.SelectHints{Start: from, End: to}
	var sets []storage.SeriesSet
	for _, s := range selectors {
		sets = append(sets, q.Select(r.Context(), true, hints, s...))
	}
	set := storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)
	var samples []newestSample
	var it chunkenc.Iterator
	for set.Next() {
		series := set.At()
		s := newestSample{name: series.Labels().Get(model.MetricNameLabel), labels: series.Labels()}
		found := false
		it = series.Iterator(it)
		for it.Next() == chunkenc.ValFloat {
			s.t, s.v = it.At()
			found = true
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		if found && !value.IsStaleNaN(s.v) {
			samples = append(samples, s)
		}
	}
	if err := set.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(samples, func(x, y newestSample) int {
		if c := strings.Compare(x.name, y.name); c != 0 {
			return c
		}
		return labels.Compare(x.labels, y.labels)
	})
	return samples, nil
}

// family packs samples of one name. Their type is not told: one series of a histogram is no histogram.
func family(samples []newestSample, external map[string]string) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: proto.String(samples[0].name), Type: dto.MetricType_UNTYPED.Enum()}
	for _, s := range samples {
		m := &dto.Metric{Untyped: &dto.Untyped{Value: proto.Float64(s.v)}, TimestampMs: proto.Int64(s.t)}
		pair := func(name, v string) {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(name), Value: proto.String(v)})
		}
		s.labels.Range(func(l labels.Label) {
			if l.Name != model.MetricNameLabel {
				pair(l.Name, l.Value)
			}
		})
		for _, name := range sortedKeys(external) {
			if !s.labels.Has(name) {
				pair(name, external[name])
			}
		}
		f.Metric = append(f.Metric, m)
	}
	return f
}

// sortedKeys lists a map's keys in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
