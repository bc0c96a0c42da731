package infaas

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/commandtest"
)

// Program returns faas-infer, which the test of another package sets: it imports this one.
var Program func() *cobra.Command

// execute runs faas-infer with arguments.
func execute(t *testing.T, arguments ...string) (stdout string, err error) {
	t.Helper()
	return commandtest.Execute(t, Program(), arguments...)
}
