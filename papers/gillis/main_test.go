package gillis

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/command/plug"
)

func TestMain(m *testing.M) {
	commandtest.Main(m, func() int { return commandtest.Run(program()) })
}

// program is faas-infer with the commands to which the room adds something.
func program() *cobra.Command {
	root := &cobra.Command{Use: "faas-infer"}
	root.AddCommand(instances.NewCommand(), &cobra.Command{Use: "model"})
	plug.AddTo(root)
	return root
}

// execute runs faas-infer with arguments.
func execute(t *testing.T, arguments ...string) (stdout string, err error) {
	t.Helper()
	return commandtest.Execute(t, program(), arguments...)
}
