//go:build !discovery_full

package config

import (
	"strings"
	"testing"
)

func TestKubernetesNeedsTheFullRelease(t *testing.T) {
	_, err := Load([]byte("scrape_configs:\n- job_name: a\n  kubernetes_sd_configs: [{role: pod}]\n"), "x.yml")
	if err == nil || !strings.Contains(err.Error(), "x.yml:3:") || !strings.Contains(err.Error(), FullRelease) {
		t.Errorf("%v does not name line and release", err)
	}
}
