package bundles_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider/children"
)

// commandEnv makes this test binary the faas-infer command, for the children that it starts.
const commandEnv = "FAAS_INFER_TEST_COMMAND"

func TestMain(m *testing.M) {
	children.StartIdle = process.Start // In children, too.
	if os.Getenv(commandEnv) == "" {
		os.Setenv(commandEnv, "1")
		goleak.VerifyTestMain(m)
		return
	}
	root := command.NewRootCommand()
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
