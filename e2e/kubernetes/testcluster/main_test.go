package testcluster_test

import (
	"os"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/isolation"
)

func TestMain(m *testing.M) { os.Exit(isolation.Run(m.Run)) }
