package kubernetes

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/instance/copies"
)

// Instances of complete ONNX models have copies, in the namespaces that have the claim.
func TestCopiesClaim(t *testing.T) {
	f := &providerFlags{copies: []string{"team-a", "openfaas-fn"}}
	spec := cluster.InstanceSpec{Function: "vgg.openfaas-fn", Artefact: cluster.Artefact{Model: "/bundle/model.onnx@sha256:1"}}
	if got := f.copiesClaim(spec); got != copiesClaim {
		t.Errorf("it has the claim %q", got)
	}
	for why, change := range map[string]func(*cluster.InstanceSpec){
		"another namespace": func(s *cluster.InstanceSpec) { s.Function = "vgg.team-b" },
		"in Python":         func(s *cluster.InstanceSpec) { s.Model = "/bundle/bundle.yaml@sha256:1" },
		"a member of a set": func(s *cluster.InstanceSpec) { s.Set = "s" },
		"ordinary":          func(s *cluster.InstanceSpec) { s.Kind = cluster.Process },
	} {
		other := spec
		change(&other)
		if got := f.copiesClaim(other); got != "" {
			t.Errorf("%s: it has the claim %q", why, got)
		}
	}
	if podspec.NodeModelVariable != copies.ModelEnv || podspec.ModelDir("a") != copies.ModelDir("a") {
		t.Errorf("pods have %s, and instances look for %s", podspec.NodeModelVariable, copies.ModelEnv)
	}
	if podspec.CopiesVariable != copies.Env {
		t.Errorf("pods have %s, and instances look for %s", podspec.CopiesVariable, copies.Env)
	}
}

func TestCopiesRefuses(t *testing.T) {
	for _, c := range []struct{ arguments, want string }{
		{"fn --size much", "--size"}, {"fn --size 0", "--size"}, {"fn --unused 0s", "--unused"}, {"fn --every -1s", "--every"},
		{"fn --keep-free 100", "--keep-free"}, {"fn --directory /tmp --listen nowhere:x", "--listen"},
		{"fn --directory /tmp --listen :0 --key /", "--key"},
		{"", "no namespace"}, {"fn --directory copies", "--directory"}, {"fn ../other", `namespace "../other"`},
	} {
		command := NewCopiesCommand()
		command.SetArgs(strings.Fields(c.arguments))
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.arguments, err)
		}
	}
}

// The agent says what it removes.
func TestTidyCopies(t *testing.T) {
	var log bytes.Buffer
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "fn", "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tidyCopies(ctx, &copies.Tidier{Root: root, Namespaces: []string{"fn"}, Unused: time.Nanosecond, Size: 1 << 30}, time.Hour, zerolog.New(&log))
	tidyCopies(ctx, &copies.Tidier{Root: filepath.Join(root, "none")}, time.Hour, zerolog.New(&log))
	if text := log.String(); !strings.Contains(text, `"copy":"fn/old"`) || !strings.Contains(text, "cannot look after") {
		t.Errorf("it says %s", text)
	}
}
