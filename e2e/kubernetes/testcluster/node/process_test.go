package node_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// The error of a program that has ended has the reason and the end of its log.
func TestEnds(t *testing.T) {
	p, err := node.StartProcess(filepath.Join(t.TempDir(), "log"), nil, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo line $i; done; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	err = p.Alive()
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "line 8") || strings.Contains(err.Error(), "line 2\n") {
		t.Error(err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("killed once it had ended: %v", err)
	}
}

func TestKill(t *testing.T) {
	p, err := node.StartProcess(filepath.Join(t.TempDir(), "log"), nil, "sleep", "300")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Alive(); err != nil {
		t.Error(err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := p.Alive(); err == nil {
		t.Error("it lives although it was killed")
	}
	if _, err := node.StartProcess(filepath.Join(t.TempDir(), "log"), nil, "/no/such/program"); err == nil {
		t.Error("a program that is not there was started")
	}
}
