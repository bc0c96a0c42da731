package command

import (
	"errors"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/commandtest"
)

// A wrong call is refused at every level with the exit code of wrong calls, and says what may have been meant.
func TestWrongCalls(t *testing.T) {
	for _, c := range []struct{ call, want string }{
		{"modle", `unknown command "modle" for "faas-infer"; did you mean model?`},
		{"modle --watch", `unknown command "modle" for "faas-infer"; did you mean model?`},
		{"model shwo", `unknown command "shwo" for "faas-infer model"; did you mean show?`},
		{"model shwo mnist.onnx --batch 2", `unknown command "shwo"`},
		{"async --url http://127.0.0.1:1 replya --all", "did you mean replay?"},
		{"profile nothing-like-it", `unknown command "nothing-like-it" for "faas-infer profile"; see`},
		{"help modle", "did you mean model?"},
		{"help model shwo", "did you mean show?"},
		{"completion basj", "did you mean bash?"},
		{"load --sol 50ms", "unknown flag: --sol; did you mean --json or --slo or --url?"},
		{"status --hlep", "did you mean --help?"},
		{"load --rate many", "invalid argument"},
		{"bundle greet", `required flag(s) "image" not set`},
		{"bundle", `the usage is "faas-infer bundle {DIR | FILE | NAME} --image NAME", but no argument was given; see faas-infer bundle --help`},
		{"why a b", `the usage is "faas-infer why NAME", but 2 arguments were given; see faas-infer why --help`},
		{"logs a --tail -5", "--tail -5: it must be the number of lines"},
		{"config validate", "did you mean show? See faas-infer config --help"},
		{"async status more", `faas-infer async status takes no arguments, but was given "more"`},
		{"up --gateway none", "--gateway"},
		{"up --policy none", "none"},
		{"up --queue-limit 0", "--queue-limit"},
	} {
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		root := NewRootCommand()
		strict(root)
		_, err := commandtest.Execute(t, root, strings.Fields(c.call)...)
		if !errors.As(err, &usageError{}) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.call, err)
		}
		if code := exitCode(err); code != usageExit {
			t.Errorf("%s: it exits with %d", c.call, code)
		}
	}
}

// Commands that only have subcommands print their help, and so do those that are asked for it.
func TestHelpOfGroups(t *testing.T) {
	for call, want := range map[string]string{
		"": "Available Commands", "model": "model show", "model --help": "Available Commands", "help model": "Available Commands",
		"help model show": "--batch", "async --help": "replay",
	} {
		root := NewRootCommand()
		strict(root)
		out, err := commandtest.Execute(t, root, strings.Fields(call)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v\n%.300s", call, err, out)
		}
	}
}
