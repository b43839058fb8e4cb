package config

import (
	"strings"
	"testing"
	"time"
)

func TestAdd(t *testing.T) {
	flags, err := FromFlags([]string{"10.0.0.1:30000"}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	job := flags.Prometheus.ScrapeConfigs[0].JobName

	c, err := Load([]byte("scrape_configs:\n  - job_name: mine\n    static_configs: [{targets: ['a:1']}]\n"), "p.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add(flags); err != nil {
		t.Fatal(err)
	}
	all, err := c.Prometheus.GetScrapeConfigs()
	if err != nil || len(all) != 2 || all[0].JobName != "mine" || all[1].JobName != job {
		t.Fatalf("got %v, %v; want the jobs mine and %s", all, err, job)
	}
	if err := c.Add(flags); err == nil || !strings.Contains(err.Error(), job) {
		t.Fatalf("a job that both have: got %v, want an error that names %s", err, job)
	}
}
