package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

func TestImportsPointLeft(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	dec, n := json.NewDecoder(bytes.NewReader(out)), 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
		if err := Check(p.ImportPath, p.Imports); err != nil {
			t.Error(err)
		}
	}
	if n < 5 {
		t.Fatalf("go list named only %d packages: this test looked at nothing", n)
	}
}

func TestCheck(t *testing.T) {
	const m = Module + "internal/"
	for _, c := range []struct {
		pkg, imp, want string
	}{
		{m + "signal", m + "engine", ""},
		{m + "engine", m + "signal", "own column"},
		{m + "metricstore", m + "scrape", "to its right"},
		{m + "api", m + "dashboard", ""},
		{m + "dashboard", m + "api", "own column"},
		{Module + "cmd/rollscope", m + "app", ""},
		{m + "newcomer", "fmt", "no column"},
		{m + "eventstore", "github.com/VictoriaMetrics/VictoriaLogs/app/vlstorage", "only eventstore/child"},
		{m + "passstore", m + "eventstore/eventtest", "only tests"},
		{m + "eventstore/eventtest", m + "eventstore/child", ""},
		{m + "eventstore/child", "github.com/VictoriaMetrics/VictoriaLogs/app/vlstorage", ""},
	} {
		err := Check(c.pkg, []string{c.imp})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s -> %s: %v", c.pkg, c.imp, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s -> %s: got %v, want %q", c.pkg, c.imp, err, c.want)
		}
	}
}
