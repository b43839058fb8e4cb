package scrape

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	promscrape "github.com/prometheus/prometheus/scrape"

	"github.com/rollscope/rollscope/internal/signal"
)

// spellingPattern says in a regular expression what signal.Canonical says in code; a test holds the
// two together. Its groups are the program and the rest of the name.
const spellingPattern = `(?:ray_serve_|ray_)?(sglang|vllm)[:_](.+)`

// spellingRule is the metric_relabel rule that stores every spelling of an engine's metric under the
// engine's own.
func spellingRule() (*relabel.Config, error) {
	re, err := relabel.NewRegexp(spellingPattern)
	if err != nil {
		return nil, fmt.Errorf("the rule for spellings: %w", err)
	}
	c := relabel.DefaultRelabelConfig
	c.SourceLabels = model.LabelNames{model.MetricNameLabel}
	c.Regex = re
	c.TargetLabel = model.MetricNameLabel
	c.Replacement = "$1:$2"
	c.NameValidationScheme = model.UTF8Validation
	return &c, nil
}

// isLoadsPath tells whether a path serves SGLang's load report, whose names look like the engine's
// metrics and mean something else.
func isLoadsPath(path string) bool {
	p := strings.TrimRight(path, "/")
	return strings.HasSuffix(p, "/v1/loads") || strings.HasSuffix(p, "/get_load")
}

// canonicalStore answers for metadata under the names that are stored.
type canonicalStore struct{ promscrape.MetricMetadataStore }

// ListMetadata lists each family once, under its canonical name.
func (s canonicalStore) ListMetadata() []promscrape.MetricMetadata {
	list := s.MetricMetadataStore.ListMetadata()
	seen := make(map[string]int, len(list))
	out := list[:0]
	for _, md := range list {
		md.MetricFamily = signal.Canonical(md.MetricFamily)
		if i, ok := seen[md.MetricFamily]; ok {
			out[i] = fuller(out[i], md)
			continue
		}
		seen[md.MetricFamily] = len(out)
		out = append(out, md)
	}
	return out
}

// GetMetadata finds a family under any spelling, and a counter with and without _total: OpenMetrics
// declares it without.
func (s canonicalStore) GetMetadata(name string) (promscrape.MetricMetadata, bool) {
	var best promscrape.MetricMetadata
	found := false
	for _, n := range signal.Spellings(name) {
		for _, v := range []string{n, strings.TrimSuffix(n, "_total")} {
			md, ok := s.MetricMetadataStore.GetMetadata(v)
			if !ok || (v != n && md.Type != model.MetricTypeCounter) {
				continue
			}
			md.MetricFamily = name
			if found {
				md = fuller(best, md)
			}
			best, found = md, true
		}
	}
	return best, found
}

// fuller joins what two spellings of one family say.
func fuller(a, b promscrape.MetricMetadata) promscrape.MetricMetadata {
	if a.Type == "" || a.Type == model.MetricTypeUnknown {
		a.Type = b.Type
	}
	if a.Help == "" {
		a.Help = b.Help
	}
	if a.Unit == "" {
		a.Unit = b.Unit
	}
	return a
}
