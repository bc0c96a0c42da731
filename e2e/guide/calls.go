package guide

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Documents returns the paths of the documents that describe the programs, below the repository's
// root: those at the root, the guide's, and those on the design and on the papers. Its error says
// that there are none of one kind.
func Documents(root string) ([]string, error) {
	var all []string
	for _, pattern := range []string{"[A-Z]*.md", "docs/*.md", "docs/design/*.md", "docs/kubernetes/*.md", "docs/runbooks/*.md", "docs/reproduction/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("there is no document %s in %s: %w", pattern, root, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

var quoted = regexp.MustCompile("`([^`\n]*)`")

// Spans returns the texts in backquotes, except those that a line's end breaks.
func Spans(text string) (all []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// Subcommand finds the command that the words after a program's name call, and the words left over.
func Subcommand(program *cobra.Command, words []string) (c *cobra.Command, rest []string) {
	c = program
	for len(words) > 0 {
		next := slices.IndexFunc(c.Commands(), func(s *cobra.Command) bool { return s.Name() == words[0] })
		if next < 0 {
			break
		}
		c, words = c.Commands()[next], words[1:]
	}
	c.InitDefaultHelpFlag()
	return c, words
}

var (
	called = regexp.MustCompile(`(?:^|[ /(])(faas-infer(?:-[a-z]+)?) ([a-z][^|;&)#]*)`)
	aFlag  = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// WrongCalls finds the calls of a program in a document's text whose subcommand or flag does not
// exist, and describes each in one sentence. newProgram makes the program's root command.
func WrongCalls(text string, newProgram func() *cobra.Command) (wrong []string) {
	name := newProgram().Name()
	text = strings.ReplaceAll(text, "\\\n", "")
	var calls []string
	for part := range strings.SplitSeq(text, "```") {
		calls = append(calls, strings.Split(part, "\n")...)
	}
	for _, call := range append(calls, Spans(text)...) {
		// In prose the program's name is followed by other words.
		if !strings.Contains(call, name+" ") || strings.Contains(call, "`") {
			continue
		}
		for _, m := range called.FindAllStringSubmatch(call, -1) {
			if m[1] != name {
				continue
			}
			c, rest := Subcommand(newProgram(), strings.Fields(m[2]))
			if !c.HasParent() && strings.Contains(call, "bin/"+name) {
				wrong = append(wrong, "no such command: "+call)
			}
			for _, flag := range aFlag.FindAllString(strings.Join(rest, " "), -1) {
				if c.HasParent() && c.Flag(strings.TrimPrefix(flag, "--")) == nil {
					wrong = append(wrong, fmt.Sprintf("%s has no flag %s: %s", c.CommandPath(), flag, call))
				}
			}
		}
	}
	return wrong
}
