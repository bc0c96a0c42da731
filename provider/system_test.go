package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	sdk "github.com/openfaas/go-sdk"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

func TestDeployRefusals(t *testing.T) {
	annotated := func(key, value string) func(d *types.FunctionDeployment) {
		return func(d *types.FunctionDeployment) {
			all := maps.Clone(*d.Annotations)
			all[key] = value
			d.Annotations = &all
		}
	}
	r := newRig(t, nil)
	for _, c := range []struct {
		body   string
		status int
		words  []string
	}{
		{"", 400, []string{"empty"}},
		{"{", 400, []string{"JSON"}},
		{`{"service": 5}`, 400, []string{"service"}},
		{"{} {}", 400, []string{"JSON"}},
		{strings.Repeat(" ", maxSystemBody+1), 413, []string{"larger than 1048576"}},
		{"{}", 400, []string{"service is not set"}},
		{deployment(func(d *types.FunctionDeployment) { d.Service = "No/Name" }), 400, []string{`service is "No/Name"`}},
		{deployment(func(d *types.FunctionDeployment) { d.Image = "" }), 400, []string{"image"}},
		{deployment(func(d *types.FunctionDeployment) { d.Annotations = &map[string]string{annotation.InferMaxBatch: "4"} }), 400, []string{"com.openfaas.slo.latency is not set", "add the annotation", `"200ms"`}},
		{deployment(annotated(annotation.SLOLatency, "0")), 400, []string{`com.openfaas.slo.latency is "0"`}},
		{deployment(annotated(annotation.SLOLatency, "-5ms")), 400, []string{`com.openfaas.slo.latency is "-5ms"`}},
		{deployment(annotated(annotation.SLOLatency, "fast")), 400, []string{`com.openfaas.slo.latency is "fast"`}},
		{deployment(annotated(annotation.InferMaxBatch, "0")), 400, []string{"com.openfaas.infer.max-batch"}},
		{deployment(annotated(annotation.InferMaxBatch, "1000000000")), 400, []string{"com.openfaas.infer.max-batch"}},
		{deployment(annotated(annotation.InferPolicy, "x")), 400, []string{"one-to-one, infless, shared"}},
		{deployment(annotated("com.openfaas.infer.x", "1")), 400, []string{"com.openfaas.infer.x", "com.openfaas.infer.keep-alive"}},
		{deployment(func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{Memory: "x"} }), 400, []string{"limits.memory"}},
	} {
		for _, method := range []string{"POST", "PUT"} {
			wantSentence(t, r.do(method, "/system/functions", c.body), c.status, c.words...)
		}
	}
	wantSentence(t, r.do("POST", "/system/functions?namespace=b", deployment(func(d *types.FunctionDeployment) { d.Namespace = "a" })), 400, "two namespaces")
	if len(r.controller.deployed) != 0 {
		t.Errorf("something was deployed: %v", r.controller.deployed)
	}
}

func TestDeployRefusedByController(t *testing.T) {
	r := newRig(t, nil)
	r.controller.refuse = fmt.Errorf("deploying: %w", web.Refuse(400, "model.onnx has no batch dimension"))
	wantSentence(t, r.do("POST", "/system/functions", deployment(nil)), 400, "no batch dimension")
	r.controller.refuse = errors.New("cgroup vanished")
	wantSentence(t, r.do("POST", "/system/functions", deployment(nil)), 500, "cgroup vanished")
	wantSentence(t, r.do("GET", "/system/function/mnist", ""), 404)
}

func TestDeployThatCannotBeRecordedIsTakenBack(t *testing.T) {
	r := newRig(t, nil)
	good := r.Server.store
	r.Server.store = brokenStore{good}
	wantSentence(t, r.do("POST", "/system/functions", deployment(nil)), 500, "no space left", "not deployed")
	if len(r.controller.deployed) != 0 {
		t.Error("the controller still runs it")
	}
	r.Server.store = good
	r.deploy(t, nil)
	r.Server.store = brokenStore{good}
	wantSentence(t, r.do("PUT", "/system/functions", deployment(func(d *types.FunctionDeployment) { d.Image = "other" })), 500)
	if got := r.controller.deployed["mnist.openfaas-fn"].Deployment.Image; got != "mnist:latest" {
		t.Errorf("%s runs after a failed update", got)
	}
	wantSentence(t, r.do("POST", "/system/scale-function/mnist", `{"replicas":2}`), 500, "restart")
}

func TestUpdate(t *testing.T) {
	r := newRig(t, nil)
	wantSentence(t, r.do("PUT", "/system/functions", deployment(nil)), 404, `"mnist"`, `"openfaas-fn"`)
	r.deploy(t, nil)
	first := r.controller.deployed["mnist.openfaas-fn"]
	r.now = func() time.Time { return now.Add(5 * time.Second) } // CreatedAt is the first one
	r.deploy(t, nil)
	again := r.controller.deployed["mnist.openfaas-fn"]
	if again.Revision <= first.Revision || again.Hash != first.Hash || !again.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("deployed again: %+v, first %+v", again, first)
	}
	edit := func(d *types.FunctionDeployment) { d.EnvVars = map[string]string{"A": "1"} }
	if w := r.do("PUT", "/system/functions", deployment(edit)); w.Code != 202 || w.Body.Len() != 0 {
		t.Errorf("PUT: %d %s", w.Code, w.Body)
	}
	if last := r.controller.deployed["mnist.openfaas-fn"]; last.Revision <= again.Revision || last.Hash == again.Hash {
		t.Errorf("updated: %+v", last)
	}
}

// A client can say which revision it has seen, or that there was no function: of two that deploy at once the second is
// refused, and the first's deployment stays.
func TestDeployOfSomethingSeen(t *testing.T) {
	r := newRig(t, nil)
	revision := func() string { return fmt.Sprintf(`"%d"`, r.controller.deployed["mnist.openfaas-fn"].Revision) }
	wantSentence(t, r.do("POST", "/system/functions", deployment(nil), "If-Match", `"1"`), 412, "removed")
	for _, status := range []int{202, 412} {
		image := func(d *types.FunctionDeployment) { d.Image = fmt.Sprint("mnist:", status) }
		if w := r.do("POST", "/system/functions", deployment(image), "If-None-Match", "*"); w.Code != status {
			t.Errorf("a first deployment: %d %s, want %d", w.Code, w.Body, status)
		}
	}
	seen := revision()
	for _, method := range []string{"POST", "PUT"} {
		if w := r.do(method, "/system/functions", deployment(nil), "If-Match", revision()); w.Code != 202 {
			t.Errorf("%s of what was seen: %d %s", method, w.Code, w.Body)
		}
		now := revision()
		wantSentence(t, r.do(method, "/system/functions", deployment(nil), "If-Match", seen), 412, "mnist", "meanwhile")
		if revision() != now {
			t.Errorf("%s: a refused deployment made revision %s", method, revision())
		}
	}
	if w := r.do("PUT", "/system/functions", deployment(nil), "If-Match", "*"); w.Code != 202 {
		t.Errorf("any revision: %d %s", w.Code, w.Body)
	}
}

func TestDelete(t *testing.T) {
	r := newRig(t, nil)
	for body, status := range map[string]int{"": 400, "{": 400, "{}": 400, `{"functionName":"mnist"}`: 404, `{"functionName":"mnist."}`: 400,
		`{"functionName":"mnist.a","namespace":"b"}`: 400} {
		wantSentence(t, r.do("DELETE", "/system/functions", body), status)
	}
	for _, c := range []struct{ target, body string }{
		{"/system/functions", `{"functionName":"mnist"}`},
		{"/system/functions", `{"functionName":"mnist.openfaas-fn"}`},
		{"/system/functions", `{"functionName":"mnist","namespace":"openfaas-fn"}`},
		{"/system/functions?namespace=openfaas-fn", `{"functionName":"mnist"}`},
	} {
		r.deploy(t, nil)
		if w := r.do("DELETE", c.target, c.body); w.Code != 202 {
			t.Errorf("DELETE %s: %d %s", c.body, w.Code, w.Body)
		}
		wantSentence(t, r.do("DELETE", c.target, c.body), 404)
		wantSentence(t, r.do("POST", "/function/mnist", "x"), 404)
	}
	if len(r.controller.deployed) != 0 {
		t.Errorf("left: %v", r.controller.deployed)
	}
	if text := r.do("GET", "/metrics", "").Body.String(); strings.Contains(text, "mnist") {
		t.Error("metrics of a deleted function are left")
	}
}

func TestScale(t *testing.T) {
	r := newRig(t, nil)
	wantSentence(t, r.do("POST", "/system/scale-function/mnist", `{"replicas":1}`), 404)
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Labels = &map[string]string{"com.openfaas.scale.min": "1", "com.openfaas.scale.max": "4"}
	})
	if got := r.controller.deployed["mnist.openfaas-fn"].Replicas; got != 1 {
		t.Errorf("deployed with %d replicas, want the minimum", got)
	}
	for body, words := range map[string]string{"": "empty", "{": "JSON", "{}": `"replicas"`, `{"replicas":-1}`: "JSON",
		`{"replicas":"2"}`: "JSON", `{"replicas":5}`: "0 or from 1 to 4", `{"replicas":1.5}`: "JSON"} {
		wantSentence(t, r.do("POST", "/system/scale-function/mnist", body), 400, words)
	}
	if w := r.do("POST", "/system/scale-function/mnist", `{"replicas":0}`); w.Code != 202 {
		t.Errorf("scale to zero: %d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/system/scale-function/mnist?namespace=openfaas-fn", `{"serviceName":"mnist","replicas":3}`); w.Code != 202 {
		t.Errorf("scale: %d %s", w.Code, w.Body)
	}
	if got := r.controller.scaled["mnist.openfaas-fn"]; got != 3 {
		t.Errorf("scaled to %d", got)
	}
	// An update keeps it, a restart too, and a lower maximum cuts it.
	r.deploy(t, nil)
	if got := r.controller.deployed["mnist.openfaas-fn"].Replicas; got != 3 {
		t.Errorf("%d replicas after an update", got)
	}
	wantSentence(t, r.do("POST", "/system/scale-function/mnist", `{"replicas":18446744073709551615}`), 400, "0 to 10000")
	r.deploy(t, func(d *types.FunctionDeployment) { d.Labels = &map[string]string{"com.openfaas.scale.max": "2"} })
	if got := r.controller.deployed["mnist.openfaas-fn"].Replicas; got != 2 {
		t.Errorf("%d replicas over a maximum of 2", got)
	}
}

func TestRestore(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "dssm" })
	r.do("POST", "/system/scale-function/dssm", `{"replicas":2}`)
	before := r.controller.deployed["dssm.openfaas-fn"]
	again := newRig(t, func(o *Options) { o.Store = r.store })
	if err := again.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	after := again.controller.deployed["dssm.openfaas-fn"]
	if after == nil || after.Revision != before.Revision || after.Replicas != 2 || after.Inference != before.Inference || !after.CreatedAt.Equal(before.CreatedAt) {
		t.Errorf("restored %+v, was %+v", after, before)
	}
	if w := again.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Errorf("invoke after restore: %d", w.Code)
	}
	damaged := newRig(t, func(o *Options) { o.Store = r.store })
	damaged.controller.refuse = web.Refuse(400, "the bundle is gone")
	if err := damaged.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantSentence(t, damaged.do("POST", "/function/mnist", "x"), 503, "the bundle is gone", "deploy the function again")
	if w := damaged.do("GET", "/system/function/mnist", ""); w.Code != 200 {
		t.Errorf("describe: %d", w.Code)
	}
}

func TestConcurrentChanges(t *testing.T) {
	r := newRig(t, nil)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			name := fmt.Sprintf("f%d", i%3)
			r.do("POST", "/system/functions", deployment(func(d *types.FunctionDeployment) { d.Service = name }))
			r.do("POST", "/function/"+name, "x")
			r.do("GET", "/system/functions", "")
			r.do("DELETE", "/system/functions", `{"functionName":"`+name+`"}`)
		})
	}
	wg.Wait()
	if r.names() != 0 || len(r.controller.deployed) != 0 || r.functionLocks.Len() != 0 {
		t.Errorf("left: %v, %v, %d", r.names(), r.controller.deployed, r.functionLocks.Len())
	}
}

// The client of the stock faas-cli accepts the answers.
func TestWithOpenFaaSClient(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Credentials = credentials })
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	defer server.CloseClientConnections()
	at, _ := url.Parse(server.URL)
	client := sdk.NewClient(at, &sdk.BasicAuth{Username: "admin", Password: "secret"}, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	ctx := context.Background()
	var spec types.FunctionDeployment
	if err := json.Unmarshal([]byte(deployment(nil)), &spec); err != nil {
		t.Fatal(err)
	}
	if code, err := client.Update(ctx, spec); code != 404 {
		t.Errorf("Update = %d, %v; want 404", code, err)
	}
	if code, err := client.Deploy(ctx, spec); code != 202 || err != nil {
		t.Errorf("Deploy = %d, %v", code, err)
	}
	if fs, err := client.GetFunctions(ctx, ""); err != nil || len(fs) != 1 {
		t.Errorf("GetFunctions = %v, %v", fs, err)
	}
	if f, err := client.GetFunction(ctx, "mnist", "openfaas-fn"); err != nil || f.Image != "mnist:latest" {
		t.Errorf("GetFunction = %+v, %v", f, err)
	}
	if err := client.ScaleFunction(ctx, "mnist", "openfaas-fn", 2); err != nil {
		t.Error(err)
	}
	if err := client.DeleteFunction(ctx, "mnist", "openfaas-fn"); err != nil {
		t.Error(err)
	}
}

func TestJSONOfTheWrongTypeIsToldInJSONsWords(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/system/functions", `{"service":1}`, `"service" cannot be a number`},
		{"POST", "/system/functions", `{"envVars":{"A":true}}`, `"envVars" cannot be a bool`},
		{"POST", "/system/functions", `[]`, "not a JSON array"},
		{"POST", "/system/scale-function/mnist", `{"replicas":-1}`, `"replicas" cannot be a number -1`},
		{"POST", "/system/functions", `{"service":`, "unexpected end"},
	} {
		w := r.do(c.method, c.path, c.body)
		if w.Code != 400 || !strings.Contains(w.Body.String(), c.want) || strings.Contains(w.Body.String(), "Go ") {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
}
