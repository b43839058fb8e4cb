//go:build discovery_full

package config

import (
	// Kubernetes and DNS discovery add 27 MB, so they are in the second release file only.
	_ "github.com/prometheus/prometheus/discovery/dns"
	_ "github.com/prometheus/prometheus/discovery/kubernetes"
)
