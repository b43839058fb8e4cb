package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// docs are the pages whose command lines and links are tested.
func docs(t *testing.T) []string {
	t.Helper()
	pages := []string{"../../README.md", "../../CONTRIBUTING.md", "../../clients/python/README.md"}
	more, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(more) == 0 {
		t.Fatalf("no pages in docs/: %v", err)
	}
	decisions, err := filepath.Glob("../../docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(append(pages, more...), decisions...)
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inline = regexp.MustCompile("`rollscope ([^`]+)`")
)

func TestDocsLinksResolve(t *testing.T) {
	n := 0
	for _, page := range docs(t) {
		text := read(t, page)
		fenced := false
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if fenced {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				path, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(path, "://") {
					continue
				}
				n++
				target := page
				if path != "" {
					target = filepath.Join(filepath.Dir(page), path)
				}
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s:%d: the link %s leads nowhere", page, i+1, m[1])
				} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
					t.Errorf("%s:%d: %s has no heading #%s", page, i+1, target, anchor)
				}
			}
		}
	}
	if n < 20 {
		t.Fatalf("only %d links were found: this test looked at nothing", n)
	}
}

// anchors are the headings of a page as GitHub names them.
func anchors(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 0x7f:
				return r
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(title))))
	}
	return out
}

// TestDocsCommandsExist looks at the command lines of the pages and of every command's own help.
func TestDocsCommandsExist(t *testing.T) {
	model := application(&env{out: io.Discard, err: io.Discard}).Model()
	n := 0
	check := func(where, line string) {
		n++
		if what := wrong(model, line); what != "" {
			t.Errorf("%s: rollscope %s: %s", where, line, what)
		}
	}
	for _, page := range docs(t) {
		fenced := false
		for line := range strings.Lines(read(t, page)) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			} else if rest, ok := commandLine(line); fenced && ok {
				check(page, rest)
			} else if !fenced {
				for _, m := range inline.FindAllStringSubmatch(line, -1) {
					check(page, strings.ReplaceAll(m[1], `\|`, "|"))
				}
			}
		}
	}
	for _, c := range model.FlattenedCommands() {
		for line := range strings.Lines(c.HelpLong) {
			if rest, ok := commandLine(line); ok {
				check(c.FullCommand+" --help", rest)
			}
		}
	}
	if n < 60 {
		t.Fatalf("only %d command lines were found: this test looked at nothing", n)
	}
	for _, bad := range []string{"vew x.pt", "view x.pt --no-such", "sim rollout dir", "export tensorbord dir"} {
		if wrong(model, bad) == "" {
			t.Errorf("%q passed", bad)
		}
	}
}

// commandLine is what stands behind the program's name in a line of a shell.
func commandLine(line string) (string, bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "rollscope ")
	return strings.TrimSuffix(rest, "..."), ok
}

// wrong says what a command line has that the program does not know. Alternatives are written
// a|b, and words in capitals stand for others.
func wrong(model *kingpin.ApplicationModel, line string) string {
	words := shellWords(line)
	if len(words) == 0 {
		return ""
	}
	flags, group := model.Flags, model.Commands
	var cmd *kingpin.CmdModel
	for len(group) > 0 && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		i := slices.IndexFunc(group, func(c *kingpin.CmdModel) bool { return c.Name == words[0] })
		if i < 0 {
			return "there is no command " + words[0]
		}
		cmd, words = group[i], words[1:]
		flags, group = append(slices.Clone(flags), cmd.Flags...), cmd.Commands
	}
	if cmd == nil {
		return "it names no command"
	}
	var args []string
	for i := 0; i < len(words); i++ {
		name, ok := strings.CutPrefix(words[i], "--")
		if !ok {
			args = append(args, words[i])
			continue
		}
		name, _, given := strings.Cut(name, "=")
		at := slices.IndexFunc(flags, func(f *kingpin.FlagModel) bool {
			return f.Name == name || f.IsBoolFlag() && "no-"+f.Name == name
		})
		if at < 0 {
			return "there is no flag --" + name
		}
		if !given && !flags[at].IsBoolFlag() {
			i++
		}
	}
	for i, a := range cmd.Args[:min(len(args), len(cmd.Args))] {
		for word := range strings.SplitSeq(args[i], "|") {
			if err := a.Value.Set(word); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// shellWords splits a line as a shell does, up to a comment, a pipe or the next command.
func shellWords(line string) []string {
	var out []string
	var word strings.Builder
	quote, open := rune(0), false
	end := func() {
		if open {
			out = append(out, word.String())
		}
		word.Reset()
		open = false
	}
	spaces := 0
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t':
			end()
			spaces++
			continue
		case !open && (r == '#' || r == '|' || r == '>' || r == '&' || r == ';'):
			return out
		case !open && spaces >= 3 && len(out) > 0 && r >= 'a' && r <= 'z': // a remark beside an example
			return out
		default:
			word.WriteRune(r)
			open = true
		}
		spaces = 0
	}
	end()
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
