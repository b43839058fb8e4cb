package signal

import (
	"log/slog"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func parseRules(t *testing.T, file []byte) *rulefmt.RuleGroups {
	t.Helper()
	groups, errs := rulefmt.Parse(file, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	return groups
}

func TestRuleFilesAreValid(t *testing.T) {
	c := Default()
	n := 0
	for _, g := range parseRules(t, RecordingRules(c)).Groups {
		n += len(g.Rules)
	}
	t.Logf("%d recording rules, %d bytes", n, len(RecordingRules(c)))
	parseRules(t, AlertRules(c))
}
