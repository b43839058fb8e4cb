// Command gents writes the TypeScript types of the HTTP API from the Go file that defines them.
// Its one entry point is [Generate]; run it as `go run ./tools/gents` from the top of the repository.
package main

import (
	"fmt"
	"os"
)

// The one source and the one result, relative to the top of the repository.
const (
	source = "internal/api/types.go"
	target = "web/src/api/types.ts"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gents:", err)
		os.Exit(1)
	}
}

func run() error {
	src, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("%w (run it from the top of the repository)", err)
	}
	out, err := Generate(source, src)
	if err != nil {
		return err
	}
	return os.WriteFile(target, out, 0o644)
}
