package infaas_test

import (
	"testing"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/papers/infaas"
	"github.com/faas-infer/faas-infer/provider/children"
)

func TestMain(m *testing.M) {
	children.StartIdle = process.Start // In children, too.
	infaas.Program = command.NewRootCommand
	commandtest.Main(m, func() int { return command.Run(command.NewRootCommand()) })
}
