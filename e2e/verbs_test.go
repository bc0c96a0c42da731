package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// faasCLI runs the stock faas-cli against the door and returns its output.
func (s *stack) faasCLI(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	cli, err := script("faas-cli.sh")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(cli, append(arguments, "--gateway", s.door)...)
	c.Env, c.Stdin = append(os.Environ(), "OPENFAAS_CONFIG="+s.dir), strings.NewReader(input)
	out, err := s.network.run(c)
	if err != nil {
		t.Fatalf("faas-cli %v: %v: %s", arguments, err, out)
	}
	return string(out)
}

// verbs uses every command of the stock faas-cli that speaks to a gateway, except for builds and templates.
func (s *stack) verbs(t *testing.T) {
	for _, c := range []struct {
		input, arguments string
		words            []string
	}{
		{s.password, "login --password-stdin", []string{"credentials saved"}},
		{"", "version --warn-update=false", []string{"faas-infer"}},
		{"", "ready", nil},
		{"quiet", "secret create of-the-cli", nil},
		{"", "secret list", []string{"of-the-cli"}},
		{"quieter", "secret update of-the-cli", nil},
		{"", "deploy --name from-the-cli --image functions/alpine:latest --fprocess cat --secret of-the-cli --label com.openfaas.scale.min=1", []string{"202"}},
		{"", "ready from-the-cli", []string{"ready"}},
		{"x", "invoke from-the-cli", []string{"x"}},
		{"x", "invoke from-the-cli --async", []string{"submitted asynchronously"}},
		{"", "list --verbose", []string{"from-the-cli", "functions/alpine:latest"}},
		{"", "describe from-the-cli", []string{"from-the-cli", "Ready", "cat"}},
		{"", "logs from-the-cli --tail=false", nil},
		{"", "namespace list", []string{defaultNamespace}},
		{"", "namespace get " + defaultNamespace, []string{defaultNamespace}},
		{"", "remove from-the-cli", nil},
		{"", "secret remove of-the-cli", nil},
	} {
		wantWords(t, s.faasCLI(t, c.input, strings.Fields(c.arguments)...), c.words...)
	}
	if a := do(t, s.http, http.MethodGet, s.through("from-the-cli"), nil); a.status != http.StatusNotFound {
		t.Errorf("a removed function answers %d %s", a.status, a.body)
	}
	if onCluster == nil { // There it needs an option of the installation.
		for _, verb := range []string{"create", "remove"} {
			s.faasCLI(t, "y\n", "namespace", verb, "of-the-cli")
		}
	}
}
