package app

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every dump, the hostile ones too, becomes what other tools read: valid JSON, and no file where it fails.
func TestConvertFixtures(t *testing.T) {
	found, err := filepath.Glob("../../torchfile/testdata/dumps/*.pt")
	if err != nil || len(found) < 40 {
		t.Fatalf("%d dumps, %v", len(found), err)
	}
	bad := []string{"c19_truncated_zip.pt", "d03_html.pt", "d03_rollout_8.pt"}
	for _, path := range found {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			for _, to := range ConvertFormats() {
				dir := t.TempDir()
				files, err := Convert(t.Context(), ConvertOptions{File: path, To: to, Out: dir, Texts: true, Version: "test"})
				there, globErr := filepath.Glob(join(dir, "*"))
				hidden, hiddenErr := filepath.Glob(join(dir, ".*"))
				if globErr != nil || hiddenErr != nil || len(hidden) != 0 {
					t.Fatalf("left lying about: %v, %v, %v", hidden, globErr, hiddenErr)
				}
				if slices.Contains(bad, name) {
					if err == nil || !strings.Contains(err.Error(), name) || len(there) != 0 {
						t.Errorf("%s: %v, files %v", to, err, there)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", to, err)
				}
				if slices.Sort(files); !slices.Equal(files, there) || len(files) == 0 {
					t.Errorf("%s: says %v, wrote %v", to, files, there)
				}
				for _, file := range there {
					b, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					if to == "parquet" {
						if !bytes.HasPrefix(b, []byte("PAR1")) || !bytes.HasSuffix(b, []byte("PAR1")) {
							t.Errorf("%s is no Parquet", file)
						}
						continue
					}
					dec, n := json.NewDecoder(bytes.NewReader(b)), 0
					for dec.More() {
						var v json.RawMessage
						if err := dec.Decode(&v); err != nil {
							t.Fatalf("%s: %v", to, err)
						}
						n++
					}
					if (to == "perfetto" || to == "cache") && n != 1 {
						t.Errorf("%s: %d values", to, n)
					}
				}
			}
		})
	}
}
