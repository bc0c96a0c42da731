package kubernetes

import (
	"io"
	"strings"
	"testing"
)

// The commands for GPUs refuse invalid flags by name.
func TestGPUCommandsRefuse(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"node"}, "--name"},
		{[]string{"node", "--name", "n", "--directory", "mps"}, "--directory"},
		{[]string{"node", "--name", "n", "--shared-memory", "shm"}, "--shared-memory"},
		{[]string{"node", "--name", "n", "--every", "1ms"}, "--every"},
		{[]string{"node", "--name", "n", "--kubeconfig", "/nowhere"}, "--kubeconfig"},
	} {
		if err := execute(test.arguments...); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: %v", test.arguments, err)
		}
	}
}

func execute(arguments ...string) error {
	c := NewRootCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(arguments)
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	return c.Execute()
}
