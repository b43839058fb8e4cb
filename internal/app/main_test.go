package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"
)

// serveEnv makes the test binary a recorder on the directory that it names, for tests that kill it. The
// directory's rollscope.yaml is its configuration.
const serveEnv = "ROLLSCOPE_TEST_SERVE"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildCommand {
		os.Exit(EventsChild(os.Args[2:]))
	}
	if dir := os.Getenv(serveEnv); dir != "" {
		err := Serve(context.Background(), ServeOptions{
			ConfigFile: dir + "/rollscope.yaml",
			Store:      StoreOptions{Dir: dir + "/data", Retention: time.Hour},
			Web:        WebOptions{Listen: []string{"127.0.0.1:0"}},
			Events:     EventOptions{OTLPGRPC: "off", OTLPHTTP: "off", Tempo: "off"},
			Logger:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Out: os.Stdout, Version: "test",
		})
		fmt.Fprintln(os.Stderr, "the recorder ended:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
