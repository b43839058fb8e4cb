package config

import (
	// File and HTTP discovery are in every build; they register themselves with Prometheus's loader.
	_ "github.com/prometheus/prometheus/discovery/file"
	_ "github.com/prometheus/prometheus/discovery/http"
)
