package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/provider/children"
)

// commandEnv makes this test binary the faas-infer command, for commands that start it
// again.
const commandEnv = "FAAS_INFER_TEST_COMMAND"

func TestMain(m *testing.M) {
	children.StartIdle = process.Start // In children, too.
	if os.Getenv(commandEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	root := NewRootCommand()
	root.SilenceErrors, root.SilenceUsage = true, true
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// execute runs faas-infer with args.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	root := NewRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
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
