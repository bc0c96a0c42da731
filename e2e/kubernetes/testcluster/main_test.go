package testcluster_test

import (
	"os"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

func TestMain(m *testing.M) { os.Exit(node.Run(m.Run)) }
