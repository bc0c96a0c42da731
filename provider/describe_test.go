package provider

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

func TestListAndDescribeEcho(t *testing.T) {
	r := newRig(t, nil)
	if w := r.do("GET", "/system/functions", ""); w.Code != 200 || w.Body.String() != "[]\n" {
		t.Errorf("empty list: %d %s", w.Code, w.Body)
	}
	full := func(d *types.FunctionDeployment) {
		d.Service, d.EnvProcess, d.ReadOnlyRootFilesystem = "a-full", "cat", true
		d.EnvVars, d.Constraints = map[string]string{"k": "v"}, []string{"node=1"}
		d.Secrets, d.Labels = []string{"key"}, &map[string]string{"l": "1"}
		d.Limits, d.Requests = &types.FunctionResources{Memory: "128Mi", CPU: "1"}, &types.FunctionResources{CPU: "100m"}
	}
	r.deploy(t, nil)
	r.deploy(t, full)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Service, d.Labels, d.Limits, d.EnvVars = "empty", &map[string]string{}, &types.FunctionResources{}, map[string]string{}
	})
	wantJSON(t, r.do("GET", "/system/function/a-full", "").Body.String(), `{"name":"a-full","image":"mnist:latest","namespace":"openfaas-fn",
		"envProcess":"cat","envVars":{"k":"v"},"constraints":["node=1"],"secrets":["key"],"labels":{"faas_function":"a-full","l":"1"},
		"annotations":{"com.openfaas.slo.latency":"50ms"},"limits":{"memory":"128Mi","cpu":"1"},"requests":{"cpu":"100m"},
		"readOnlyRootFilesystem":true,"replicas":2,"availableReplicas":1,"createdAt":"2026-11-21T12:00:00Z"}`)
	empty := `{"name":"empty","image":"mnist:latest","namespace":"openfaas-fn","labels":{"faas_function":"empty"},"annotations":{"com.openfaas.slo.latency":"50ms"},
		"replicas":2,"availableReplicas":1,"createdAt":"2026-11-21T12:00:00Z"}`
	wantJSON(t, r.do("GET", "/system/function/empty", "").Body.String(), empty)
	r.do("POST", "/function/empty", "x")
	wantJSON(t, r.do("GET", "/system/function/empty.openfaas-fn?usage=true", "").Body.String(), strings.TrimSuffix(empty, "}")+
		`,"invocationCount":1,"usage":{"cpu":250,"totalMemoryBytes":1048576}}`)
	for target, want := range map[string]string{
		"/system/functions": "a-full empty mnist", "/system/functions?namespace=openfaas-fn": "a-full empty mnist",
		"/system/functions?namespace=team-a": "mnist", "/system/functions?namespace=nowhere": "",
	} {
		var list []types.FunctionStatus
		if err := json.Unmarshal(r.do("GET", target, "").Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, f := range list {
			names = append(names, f.Name)
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s lists %v, want %s", target, names, want)
		}
	}
	wantSentence(t, r.do("GET", "/system/function/absent", ""), 404, "absent")
	wantSentence(t, r.do("GET", "/system/function/mnist.nowhere", ""), 404, "nowhere")
	wantSentence(t, r.do("GET", "/system/function/mnist.team-a?namespace=b", ""), 400, "two namespaces")
	if w := r.do("GET", "/system/function/mnist?namespace=team-a", ""); w.Code != 200 {
		t.Errorf("describe by query: %d", w.Code)
	}
}

func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%q: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
