package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/openfaas/go-sdk/stack"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// The demo deploys stack.yml and users copy it: faas-cli's own parser must accept it,
// and so must the provider.
func TestStackFile(t *testing.T) {
	services, err := stack.ParseYAMLFile("stack.yml", "", "", true)
	if err != nil {
		t.Fatal(err)
	}
	if p := services.Provider; p.Name != "openfaas" || p.GatewayURL != "http://127.0.0.1:8080" {
		t.Errorf("provider %+v", p)
	}
	for _, name := range []string{"mnist", "dssm"} {
		f, ok := services.Functions[name]
		if !ok {
			t.Errorf("no function %s", name)
			continue
		}
		if !f.SkipBuild || f.Handler != "" || f.Image != name+":latest" || f.Annotations == nil {
			t.Fatalf("%s: %+v", name, f)
		}
		in, err := annotation.Parse(types.FunctionDeployment{Service: name, Image: f.Image, Annotations: f.Annotations})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if in.SLO != 50*time.Millisecond || in.Percentile != 99 || in.MaxBatch != 32 {
			t.Errorf("%s: %+v", name, in)
		}
	}
	if len(services.Functions) != 2 {
		t.Errorf("%d functions, want 2", len(services.Functions))
	}
	// The README's function is that of the file, and can be copied.
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(text), "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	copied, err := stack.ParseYAMLData([]byte(shown), "", "", true)
	if err != nil || !reflect.DeepEqual(copied.Functions["mnist"], services.Functions["mnist"]) {
		t.Errorf("the README's function differs, or: %v", err)
	}
}
