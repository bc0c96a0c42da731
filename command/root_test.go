package command

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/provider/children"
)

func TestMain(m *testing.M) {
	children.StartIdle = process.Start // In children, too.
	commandtest.Main(m, func() int { return Run(NewRootCommand()) })
}

// execute runs faas-infer with args.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return commandtest.Execute(t, NewRootCommand(), args...)
}

func TestUnknownCommandsAndFlags(t *testing.T) {
	for says, args := range map[string][]string{`unknown command "serve"`: {"serve"}, "load --help": {"load", "--url=http://127.0.0.1:1", "--speed=3"}} {
		if _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// Every command's help has an example.
func TestEveryCommandHasAnExample(t *testing.T) {
	root := NewRootCommand()
	for _, c := range root.Commands() {
		if c.Example == "" && !c.HasSubCommands() || c.Short == "" {
			t.Errorf("%s has no example or no short help", c.CommandPath())
		}
	}
}
