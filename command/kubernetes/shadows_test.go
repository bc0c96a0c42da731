package kubernetes

import (
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider"
)

// Instances have shadows only where pods share prepared copies. The refusal says what to do.
func TestShadowsNeedCopies(t *testing.T) {
	p := (&providerFlags{copies: []string{"team-a"}}).shadowPlatform(command.Base{}, nil, nil, nil)
	for _, c := range []struct{ namespace, want string }{
		{"team-a", ""},
		{"team-b", `namespace "team-b" share no prepared copies`},
	} {
		f := &provider.Function{Deployment: types.FunctionDeployment{Service: "f", Namespace: c.namespace}}
		err := p.Check(f)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.namespace, err)
		}
	}
}

// A shadow is started with its part, and its body connects to its pod at the port of the relay.
func TestShadowsArguments(t *testing.T) {
	spec := cluster.InstanceSpec{Function: "vgg.team-a", Role: cluster.Shadow, Part: "0:18,20:22", Body: "b", Artefact: cluster.Artefact{Model: "/bundle/model.onnx@sha256:1"},
		Config: cluster.Config{Batch: 4, Resources: cluster.Resources{CPU: 500, Memory: 128 << 20}}}
	args := (&providerFlags{}).instanceArguments(spec)
	if text := strings.Join(args, " "); !strings.HasPrefix(text, "instance --shadow 0:18,20:22 --relay tcp://:8090 ") || !strings.Contains(text, "--model /bundle/model.onnx ") || !strings.Contains(text, "--memory 134217728 ") {
		t.Errorf("%s", text)
	}
	spec.Role, spec.Part, spec.Body, spec.Paired = cluster.Body, "", "", true
	// An image that is older than the provider would refuse a flag.
	if args := (&providerFlags{}).instanceArguments(spec); slices.Contains(args, "body") || slices.Contains(args, "--concurrency") {
		t.Errorf("a body has %v", args)
	}
	for address, want := range map[string]string{"10.1.2.3:8080": "10.1.2.3:8090", "[fd00::1]:8080": "[fd00::1]:8090"} {
		if got := relayAt(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}
