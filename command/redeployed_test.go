package command

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// A start says what it undoes: changes and removals since the last one, not those of the stack file itself.
func TestOverwritten(t *testing.T) {
	of := func(slo, image, secret string) types.FunctionDeployment {
		return types.FunctionDeployment{Service: "mnist", Namespace: "openfaas-fn", Image: image, EnvVars: map[string]string{"KEY": secret},
			Annotations: &map[string]string{"com.openfaas.slo.latency": slo}}
	}
	functions := []stackFunction{{of("50ms", "mnist:v1", "a")}}
	last, file := of("50ms", "mnist:v1", "a"), filepath.Join(t.TempDir(), "stack.json")
	if none, err := readDeployments(file); none == nil || err != nil {
		t.Error(none, err)
	}
	if err := keepDeployed(file, deployments{}, deployments{"mnist.openfaas-fn": last}, functions); err != nil {
		t.Fatal(err)
	}
	kept, err := readDeployments(file)
	if err != nil {
		t.Fatal(err)
	}
	const count = "; stack.yml counts. Write the change into it, or start with --stack \"\""
	for _, c := range []struct {
		last, before deployments
		now          types.FunctionDeployment
		want         string
	}{
		{kept, deployments{"mnist.openfaas-fn": last}, last, ""},
		{kept, deployments{"mnist.openfaas-fn": last}, of("30ms", "mnist:v2", "b"), ""}, // stack.yml was changed.
		{kept, deployments{"mnist.openfaas-fn": of("20ms", "mnist:v1", "a")}, last, "mnist: stack.yml says com.openfaas.slo.latency 50ms, 20ms was set since" + count},
		{kept, deployments{"mnist.openfaas-fn": of("20ms", "mnist:v1", "a")}, of("20ms", "mnist:v1", "a"), ""}, // The change was written into it.
		{kept, deployments{"mnist.openfaas-fn": of("50ms", "mnist:v2", "b")}, last, "mnist: envVars.KEY was changed since; stack.yml says image mnist:v1, mnist:v2 was set since" + count},
		{kept, deployments{}, last, "mnist: stack.yml brings it back, it was removed since. Remove it there, or start with --stack \"\""},
		{deployments{}, deployments{}, last, ""}, // The first start.
	} {
		said := overwritten("stack.yml", functions, c.last, c.before, deployments{"mnist.openfaas-fn": c.now})
		if want := []string{c.want}; !slices.Equal(said, want) && (c.want != "" || len(said) > 0) {
			t.Errorf("it says %q, want %q", said, want)
		}
	}
}
