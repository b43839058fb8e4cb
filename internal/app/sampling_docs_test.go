package app

import (
	"os"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/tailsample"
)

// The examples of docs/sampling.md are configurations as they stand there.
func TestSamplingDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/sampling.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(text), "```yaml\n")[1:]
	if len(examples) != 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for i, example := range examples {
		example, _, _ = strings.Cut(example, "```")
		const path = "rollscope.yaml"
		cfg, err := config.Load([]byte(example), path)
		if err != nil {
			t.Fatalf("example %d: %v", i, err)
		}
		o, notes, err := tailsample.FromNode(nodeOf(&cfg.Rollscope.Traces.Sampling), path)
		if err != nil || len(notes) > 0 {
			t.Fatalf("example %d: %v, %v", i, err, notes)
		}
		if _, err := tailsample.New(o); err != nil {
			t.Fatal(err)
		}
		switch p := o.Policy; i {
		case 0:
			if p.Ratio != 0.01 || p.Slow.TTFT == 0 || len(p.Keep) != 2 || len(p.Drop) != 1 || o.MaxBytes != 256e6 && o.MaxBytes != 256<<20 {
				t.Errorf("%+v", o)
			}
		case 1:
			if p.Collector == nil || o.MaxTraces != 100_000 || o.RememberTraces != 1_000_000 {
				t.Errorf("%+v", o)
			}
		}
	}
}
