package dashboard

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rollscope/rollscope/internal/signal"
)

// ExportOptions says what is written for Grafana.
type ExportOptions struct {
	GrafanaOptions
	Catalog *signal.Catalog // needed
	Boards  []Board         // from [Boards]
	// URL is the Prometheus-compatible server that the provisioned datasource asks; "" is Rollscope on
	// this machine, http://127.0.0.1:9090.
	URL string
	// Path is where Grafana will see the dashboards directory; "" is /var/lib/grafana/dashboards/rollscope.
	Path string
	// Interval is the scrape interval of the server, as Grafana wants it; "" is 15s.
	Interval string
}

// Export writes dashboards, provisioning and rules under dir and lists the files, relative to dir and
// sorted. The same options give the same bytes. Files of these names are overwritten, nothing else is
// touched; the error names the file.
func Export(dir string, o ExportOptions) ([]string, error) {
	files := map[string][]byte{
		"provisioning/datasources/rollscope.yaml": []byte(datasourceYAML(o)),
		"provisioning/dashboards/rollscope.yaml":  []byte(providerYAML(o)),
		"rules/rollscope-recording.yml":           signal.RecordingRules(o.Catalog),
		"rules/rollscope-alerts.yml":              signal.AlertRules(o.Catalog),
	}
	for _, b := range o.Boards {
		data, err := Grafana(o.Catalog, b, o.GrafanaOptions)
		if err != nil {
			return nil, err
		}
		files["dashboards/"+UID(b)+".json"] = data
	}
	names := sortedKeys(files)
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("export for Grafana: %w", err)
		}
		if err := replaceFile(path, files[name]); err != nil {
			return nil, fmt.Errorf("export for Grafana: %w", err)
		}
	}
	return names, nil
}

// replaceFile writes beside the file and renames, so that a Grafana that watches the directory never
// reads half of it.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.Write(data)
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

func datasourceYAML(o ExportOptions) string {
	url, interval := o.URL, o.Interval
	if url == "" {
		url = "http://127.0.0.1:9090"
	}
	if interval == "" {
		interval = "15s"
	}
	return fmt.Sprintf(`# Goes to /etc/grafana/provisioning/datasources/. The boards find their datasource by a variable: any
# other Prometheus datasource will do as well.
apiVersion: 1
datasources:
  - name: Rollscope
    uid: rollscope
    type: prometheus
    access: proxy
    url: %q
    jsonData:
      httpMethod: POST
      prometheusType: Prometheus
      timeInterval: %q
`, url, interval)
}

func providerYAML(o ExportOptions) string {
	path := o.Path
	if path == "" {
		path = "/var/lib/grafana/dashboards/rollscope"
	}
	reads := "the scraped series; no rules are needed."
	if o.Recorded {
		reads = "recorded series: load rules/*.yml into the server first. Rollscope has them."
	}
	return fmt.Sprintf(`# Goes to /etc/grafana/provisioning/dashboards/; the directory dashboards/ goes to the path below.
# These boards read %s
apiVersion: 1
providers:
  - name: rollscope
    folder: Rollscope
    type: file
    allowUiUpdates: true
    options:
      path: %q
`, reads, path)
}
