package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/template"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

// Exit codes, the same for every command.
const (
	exitOK       = 0 // fine
	exitNo       = 1 // the answer is no: lint found something, a budget is spent
	exitBadInput = 2 // bad usage or input
	exitUnknown  = 3 // could not be determined
)

// exitError ends the program with a code. A nil err prints nothing: the command has said it all.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func badInput(format string, args ...any) error {
	return &exitError{exitBadInput, fmt.Errorf(format, args...)}
}

func unknown(err error) error { return &exitError{exitUnknown, err} }

// env is what every command gets instead of package-level state.
type env struct {
	ctx            context.Context
	in             io.Reader
	out, err       io.Writer
	version        string
	level, logForm string
}

// logger writes to stderr in the form that the log flags ask for.
func (e *env) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(e.level)) // the flag is an enum
	opts := &slog.HandlerOptions{Level: level}
	if e.logForm == "json" {
		return slog.New(slog.NewJSONHandler(e.err, opts))
	}
	return slog.New(slog.NewTextHandler(e.err, opts))
}

// commands lists every command of the binary in the order of the help page.
var commands = []func(*kingpin.Application, *env){
	addServe, addDemo, addReplay,
	addQuery, addTop, addRequests, addTrace, addExplain,
	addView, addPerf, addConvert, addLogs, addFPM,
	addSnapshot, addDoctor, addLint, addExport, addSim,
}

// leave is what kingpin's --help and --version panic with, since its Terminate must not return.
type leave int

// application is all commands with their flags, which print to what e has.
func application(e *env) *kingpin.Application {
	app := kingpin.New("rollscope", "Records what LLM engines and RL rollouts do, keeps it after the job ends, and explains it.")
	app.Version("rollscope " + e.version).UsageWriter(e.out).ErrorWriter(e.err).Terminate(func(code int) { panic(leave(code)) })
	app.HelpFlag.Short('h')
	app.Flag("log.level", "Least severe message that is printed.").Default("info").EnumVar(&e.level, "debug", "info", "warn", "error")
	app.Flag("log.format", "Form of the messages.").Default("text").EnumVar(&e.logForm, "text", "json")
	app.UsageTemplate(usageTemplate).UsageFuncs(template.FuncMap{"CommandsToTwoColumns": commandColumns})
	for _, add := range commands {
		add(app, e)
	}
	return app
}

// joinDash writes `--flag -` as `--flag=-`, and `--flag -1` as `--flag=-1`: kingpin takes a dash that stands alone
// for an empty value, and a negative number for another flag.
func joinDash(args []string) []string {
	var out []string
	for _, a := range args {
		_, err := strconv.Atoi(a)
		if n := len(out); (a == "-" || err == nil && a[0] == '-') && n > 0 && strings.HasPrefix(out[n-1], "--") && !strings.Contains(out[n-1], "=") {
			out[n-1] += "=" + a
			continue
		}
		out = append(out, a)
	}
	return out
}

func run(args []string, in io.Reader, out, errOut io.Writer) (code int) {
	if len(args) > 0 && args[0] == app.ChildCommand { // with flags of its own, for nobody to type
		return app.EventsChild(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	e := &env{ctx: ctx, in: in, out: out, err: errOut, version: version}

	defer func() {
		if p := recover(); p != nil {
			l, ok := p.(leave)
			if !ok {
				panic(p)
			}
			code = int(l)
		}
	}()
	_, err := application(e).Parse(joinDash(args))
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintln(errOut, "rollscope:", exit.err)
		}
		return exit.code
	case isUsage(err):
		fmt.Fprintf(errOut, "rollscope: %v (try: rollscope %s --help)\n", err, firstWord(args))
		return exitBadInput
	default:
		fmt.Fprintln(errOut, "rollscope:", err)
		return exitBadInput
	}
}

// isUsage tells kingpin's own complaints from errors of a command.
func isUsage(err error) bool {
	s := err.Error()
	for _, p := range []string{"unknown ", "expected ", "required ", "unexpected ", "invalid ", "command not specified", "must select"} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func firstWord(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}

// commandColumns lists commands with the first sentence of their help.
func commandColumns(commands []*kingpin.CmdModel) (rows [][2]string) {
	for _, c := range commands {
		if !c.Hidden {
			rows = append(rows, [2]string{c.Name, c.Help})
		}
	}
	return rows
}

// usageTemplate prints a command's example first and its flags after: the order in which people read.
const usageTemplate = `{{define "FormatCommand" -}}
{{if .FlagSummary}} {{.FlagSummary}}{{end -}}
{{range .Args}}{{if not .Hidden}} {{if not .Required}}[{{end}}{{if .PlaceHolder}}{{.PlaceHolder}}{{else}}<{{.Name}}>{{end}}{{if .Value|IsCumulative}}...{{end}}{{if not .Required}}]{{end}}{{end}}{{end -}}
{{end -}}

{{define "FormatCommandList" -}}
{{range . -}}{{if not .Hidden}}{{.Depth|Indent}}{{.Name}}{{if .Default}}*{{end}}{{template "FormatCommand" .}}
{{end -}}{{template "FormatCommandList" .Commands -}}{{end -}}
{{end -}}

{{define "FormatUsage" -}}
{{template "FormatCommand" .}}{{if .Commands}} <command> [<args> ...]{{end}}
{{if .Help}}
{{.Help|Wrap 0 -}}
{{end -}}{{end -}}

{{if .Context.SelectedCommand -}}
usage: {{.App.Name}} {{.Context.SelectedCommand}}{{template "FormatUsage" .Context.SelectedCommand}}
{{if .Context.SelectedCommand.HelpLong}}{{.Context.SelectedCommand.HelpLong}}
{{end -}}
{{else -}}
usage: {{.App.Name}}{{template "FormatUsage" .App}}
{{end -}}
{{if .Context.Flags -}}
Flags:
{{.Context.Flags|FlagsToTwoColumns|FormatTwoColumns}}
{{end -}}
{{if .Context.Args -}}
Args:
{{.Context.Args|ArgsToTwoColumns|FormatTwoColumns}}
{{end -}}
{{if .Context.SelectedCommand -}}
{{if len .Context.SelectedCommand.Commands -}}
Subcommands:
{{.Context.SelectedCommand.Commands|CommandsToTwoColumns|FormatTwoColumns}}
{{end -}}
{{else if .App.Commands -}}
Commands:
{{.App.Commands|CommandsToTwoColumns|FormatTwoColumns}}
{{end -}}
`
