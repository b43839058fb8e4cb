// Package child is the one place that links VictoriaLogs' server: it runs in a process of its own, which
// package eventstore starts and watches. Its entry point is Main.
package child

import (
	_ "github.com/VictoriaMetrics/VictoriaLogs/app/vlinsert"
	_ "github.com/VictoriaMetrics/VictoriaLogs/app/vlinsert/insertutil"
	_ "github.com/VictoriaMetrics/VictoriaLogs/app/vlselect"
	_ "github.com/VictoriaMetrics/VictoriaLogs/app/vlstorage"
)
