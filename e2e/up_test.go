package e2e

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// A user's first steps: everything starts from one stack.yml, and functions go through
// their whole life with OpenFaaS's own client.
func TestUp(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	s := p.up(t)
	t.Run("gateway's metrics", s.countsAsTheGateway)
	s.firstSteps(t)
}

// The same first steps lead through the stock gateway.
func TestUpBehindGateway(t *testing.T) {
	p := gatewayPlace(t)
	s := p.upBehind(t)
	t.Run("web interface", s.interfaceAnswers)
	if onCluster == nil && s.metrics(t)["gateway_service_count"] != nil {
		t.Error("the gateway and the provider have the same metrics")
	}
	s.firstSteps(t)
}

// firstSteps does what both doors serve, and ends the stack.
func (s *stack) firstSteps(t *testing.T) {
	p := s.place
	t.Run("list and describe", s.listed)
	t.Run("basic auth", s.guarded)
	t.Run("every protocol alone and in batches", s.answersAreRight)
	t.Run("deploy, scale and delete", s.deployScaleDelete)
	t.Run("bad deployments", s.badDeployments)
	t.Run("faas-cli", s.verbs)
	groups := p.cgroups()
	if len(p.instances()) == 0 {
		t.Error("no instance is running before the end")
	}
	s.stop(t)
	gone(t, groups)
}

func (s *stack) listed(t *testing.T) {
	functions, err := s.faas.GetFunctions(t.Context(), "openfaas-fn")
	if err != nil {
		t.Fatal(err)
	}
	if len(functions) != 2 || functions[0].Name != "identity" || functions[1].Name != "mnist" {
		t.Fatalf("listed %+v", functions)
	}
	one, err := s.faas.GetFunction(t.Context(), "mnist", "openfaas-fn")
	if err != nil {
		t.Fatal(err)
	}
	if one.Annotations != nil {
		own(*one.Annotations)
	}
	annotations := map[string]string{
		"com.openfaas.slo.latency": "10s", "com.openfaas.slo.percentile": "95", "com.openfaas.infer.model": "model.onnx",
		"com.openfaas.infer.max-batch": "32", "com.openfaas.infer.keep-alive": "5m",
	}
	if one.Annotations == nil || !maps.Equal(*one.Annotations, annotations) || one.Labels == nil || (*one.Labels)["team"] != "vision" ||
		one.Image != "mnist:latest" || one.Namespace != "openfaas-fn" {
		t.Errorf("described as %+v", one)
	}
}

// own leaves out the annotations that are the provider's and not the deployment's.
func own(annotations map[string]string) {
	for _, key := range []string{annotation.InferPlan, annotation.InferReach, annotation.InferPromise, annotation.InferProgress} {
		delete(annotations, key)
	}
}

func (s *stack) guarded(t *testing.T) {
	for _, at := range []string{s.door, s.url} {
		if a := do(t, s.http, http.MethodGet, at+"/system/functions", nil); a.status != http.StatusUnauthorized {
			t.Errorf("%s/system/functions without credentials: %d", at, a.status)
		}
		r, _ := http.NewRequest(http.MethodGet, at+"/system/functions", nil)
		r.SetBasicAuth("admin", "wrong")
		response, err := s.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s/system/functions with a wrong password: %d", at, response.StatusCode)
		}
	}
	if a := do(t, s.http, http.MethodGet, s.through("absent"), nil); a.status != http.StatusNotFound {
		t.Errorf("an unknown function: %d %s", a.status, a.body)
	}
	if _, err := s.faas.GetFunction(t.Context(), "absent", "openfaas-fn"); err == nil {
		t.Error("an unknown function is described")
	}
}

// countsAsTheGateway asks for the names that OpenFaaS' dashboards and alerts use.
func (s *stack) countsAsTheGateway(t *testing.T) {
	if err := invokeIdentity(s.http, s.through("identity"), 1); err != nil {
		t.Fatal(err)
	}
	families := s.metrics(t)
	for _, name := range []string{"gateway_function_invocation_total", "gateway_function_invocation_started", "gateway_functions_seconds", "gateway_service_count"} {
		if len(families[name].GetMetric()) == 0 {
			t.Errorf("there is no %s", name)
		}
	}
}

func (s *stack) interfaceAnswers(t *testing.T) {
	r, _ := http.NewRequest(http.MethodGet, gatewayURL+"/ui/", nil)
	r.SetBasicAuth("admin", s.password)
	response, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("/ui/: %d", response.StatusCode)
	}
}

// tolerance is how far an answer in a batch may be from the same request's answer alone.
// Kernels for batches add numbers in another order.
const tolerance = 1e-4

// answersAreRight sends distinct inputs one by one, then all of them at once in every
// protocol. Each must get its own answer again.
func (s *stack) answersAreRight(t *testing.T) {
	const requests = 48
	m := zooModel(t, "mnist")
	inputs := make([]tensor.Tensor, requests)
	alone := make([][]float32, requests)
	for i := range inputs {
		inputs[i] = sample(t, m, i)
		var err error
		if alone[i], err = askBinary(s.http, s.through("mnist"), inputs[i]); err != nil || len(alone[i]) != 10 {
			t.Fatalf("request %d alone: %v, %v", i, alone[i], err)
		}
	}
	if furthest(alone[0], alone[1]) < 10*tolerance {
		t.Fatal("different inputs have the same answers, which shows nothing")
	}
	before, membersBefore, _ := s.batches(t, "mnist")
	for name, ask := range protocols {
		var all sync.WaitGroup
		for i := range inputs {
			all.Go(func() {
				got, err := ask(s.http, s.through("mnist"), inputs[i])
				if err != nil || len(got) != len(alone[i]) {
					t.Errorf("%s, request %d: %v, %v", name, i, got, err)
				} else if off := furthest(got, alone[i]); off > tolerance {
					t.Errorf("%s, request %d is off by %g", name, i, off)
				}
			})
		}
		all.Wait()
	}
	batches, members, larger := s.batches(t, "mnist")
	if members-membersBefore != uint64(len(protocols)*requests) {
		t.Errorf("%d requests in batches, %d were sent", members-membersBefore, len(protocols)*requests)
	}
	if !larger {
		t.Error("no batch had more than one request")
	}
	t.Logf("%d concurrent requests in %d batches", members-membersBefore, batches-before)
}

func sample(t *testing.T, m *model.Model, seed int) tensor.Tensor {
	t.Helper()
	in, err := m.SampleInputs(1, uint64(seed))
	if err != nil {
		t.Fatal(err)
	}
	return in[0]
}

func furthest(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(float64(a[i]-b[i])))
	}
	return most
}

// deployScaleDelete takes a function with every field through its life.
func (s *stack) deployScaleDelete(t *testing.T) {
	ctx := t.Context()
	f := function("full", "identity:latest", "1s", "infer.policy", "infless", "infer.keep-alive", "10m")
	f.Namespace, f.EnvProcess, f.ReadOnlyRootFilesystem = "openfaas-fn", "unused", true
	f.EnvVars = map[string]string{"A": "1", "B": "two words"}
	f.Labels = &map[string]string{"com.openfaas.scale.min": "1", "com.openfaas.scale.max": "4", "any": "label"}
	f.Limits = &types.FunctionResources{Memory: "256Mi", CPU: "500m"}
	f.Requests = &types.FunctionResources{CPU: "250m"}
	if status, err := s.faas.Deploy(ctx, f); err != nil || status != http.StatusAccepted {
		t.Fatalf("deploy: %d, %v", status, err)
	}
	got, err := s.faas.GetFunction(ctx, "full", "openfaas-fn")
	if err != nil {
		t.Fatal(err)
	}
	own(*got.Annotations)
	if back := deployment(got); !reflect.DeepEqual(back, withLabel(f)) {
		t.Errorf("described as\n%+v, deployed was\n%+v", back, withLabel(f))
	}
	s.awaitAvailable(t, "full", 1)
	if err := s.faas.ScaleFunction(ctx, "full", "openfaas-fn", 2); err != nil {
		t.Fatal(err)
	}
	s.awaitAvailable(t, "full", 2)
	await(t, patience, "two processes for two instances", func() bool { return len(s.instancesOf("full")) == 2 })
	if err := invokeIdentity(s.http, s.through("full"), 7); err != nil {
		t.Error(err)
	}
	if err := s.faas.DeleteFunction(ctx, "full", "openfaas-fn"); err != nil {
		t.Fatal(err)
	}
	if a := do(t, s.http, http.MethodPost, s.through("full"), []byte("x")); a.status != http.StatusNotFound {
		t.Errorf("a deleted function answers %d", a.status)
	}
	await(t, patience, "the deleted function's processes to go", func() bool { return len(s.instancesOf("full")) == 0 })
}

// deployment returns the deployment in a status.
func deployment(s types.FunctionStatus) types.FunctionDeployment {
	return types.FunctionDeployment{
		Service: s.Name, Image: s.Image, Namespace: s.Namespace, EnvProcess: s.EnvProcess, EnvVars: s.EnvVars, Constraints: s.Constraints,
		Secrets: s.Secrets, Labels: s.Labels, Annotations: s.Annotations, Limits: s.Limits, Requests: s.Requests,
		ReadOnlyRootFilesystem: s.ReadOnlyRootFilesystem,
	}
}

func (s *stack) awaitAvailable(t *testing.T, name string, n uint64) {
	t.Helper()
	s.await(t, patience, fmt.Sprintf("%d instances of %s", n, name), func() bool {
		f, err := s.faas.GetFunction(t.Context(), name, "openfaas-fn")
		return err == nil && f.AvailableReplicas == n
	})
}

// A busy port of the gateway and a missing stack get a plain error, and nothing stays.
func TestUpRefuses(t *testing.T) {
	p := gatewayPlace(t)
	p.awaitGatewayPorts(t)
	behind := []string{"up", "--gateway", "stock", "--listen", "127.0.0.1:0", "--stack"}
	for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:8082"} {
		t.Run(address, func(t *testing.T) {
			l, err := p.network.listen(address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			d := p.run(t, suite.binary, append(behind, filepath.Join("testdata", "stack.yml"))...)
			if code := d.exit(t, patience); code != 1 {
				t.Errorf("exit code %d", code)
			}
			wantWords(t, d.logText(), address, "gateway", "in use")
			d.nothingLeft(t)
		})
	}
	d := p.run(t, suite.binary, append(behind, filepath.Join(p.dir, "absent.yml"))...)
	if code := d.exit(t, patience); code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantWords(t, d.logText(), "absent.yml")
}
