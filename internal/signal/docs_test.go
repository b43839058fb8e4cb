package signal

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/engine"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run go test with -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the catalog says: run go test with -update", path)
	}
}

func TestDocs(t *testing.T) {
	var buf bytes.Buffer
	if err := WriteDocs(&buf, Default()); err != nil {
		t.Fatal(err)
	}
	golden(t, "../../docs/metrics.md", buf.Bytes())
}

func TestExplain(t *testing.T) {
	c := Default()
	var buf bytes.Buffer
	for _, name := range []string{"queue_depth", "spec_accept_rate", "sglang_cache_hit_rate", "sglang_e2e_first_token_latency_seconds_bucket", "kv_usgae", "sglang:num_runing_reqs"} {
		text, _ := Explain(c, name)
		buf.WriteString("$ rollscope explain " + name + "\n" + text + "\n")
	}
	golden(t, "testdata/explain.txt", buf.Bytes())
	for _, m := range c.Metrics() {
		if found, _ := c.Metric(m.Name); found.Name != m.Name && m.Backend == engine.SGLangLoads {
			continue // the engine's metric of that spelling is explained, and says so
		}
		if text, ok := Explain(c, m.Name); !ok || !strings.Contains(text, m.Meaning[:min(len(m.Meaning), 20)]) {
			t.Errorf("%s is not explained: %v %s", m.Name, ok, text)
		}
	}
	for _, s := range c.Signals() {
		if _, ok := Explain(c, s.ID); !ok {
			t.Errorf("%s is not explained", s.ID)
		}
	}
}
