package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// fill publishes n functions as if they had been deployed.
func (r *rig) fill(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		var d types.FunctionDeployment
		if err := json.Unmarshal([]byte(deployment(nil)), &d); err != nil {
			t.Fatal(err)
		}
		d.Service, d.Namespace = fmt.Sprintf("function-%05d", i), DefaultNamespace
		d.EnvVars = map[string]string{"A": "1", "B": "2"}
		d.Limits = &types.FunctionResources{CPU: "500m", Memory: "128Mi"}
		in, err := annotation.Parse(d)
		if err != nil {
			t.Fatal(err)
		}
		f := &Function{Name: FullName(d.Service, d.Namespace), Deployment: d, Inference: in, CreatedAt: now}
		r.controller.deployed[f.Name] = f
		r.publish(r.deployed(f, r.controller.dispatcher))
	}
}

// The list and the description of a function show the same at any time.
func TestListShowsWhatDescribeShows(t *testing.T) {
	r := newRig(t, nil)
	same := func() {
		t.Helper()
		var listed []types.FunctionStatus
		if err := json.Unmarshal(r.do("GET", "/system/functions", "").Body.Bytes(), &listed); err != nil {
			t.Fatal(err)
		}
		for _, of := range listed {
			var alone types.FunctionStatus
			if err := json.Unmarshal(r.do("GET", "/system/function/"+of.Name, "").Body.Bytes(), &alone); err != nil || !reflect.DeepEqual(of, alone) {
				t.Errorf("listed %+v, described %+v, %v", of, alone, err)
			}
		}
	}
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.EnvProcess, d.EnvVars, d.Constraints, d.Secrets = "cat", map[string]string{"A": "</>"}, []string{"c"}, []string{"s"}
		d.Labels, d.Limits, d.Requests = &map[string]string{"l": "1"}, &types.FunctionResources{CPU: "1"}, &types.FunctionResources{Memory: "1Mi"}
		d.ReadOnlyRootFilesystem = true
	})
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service, d.Annotations = "alpine", &map[string]string{} })
	same()
	r.do("POST", "/function/mnist", "x")
	same()
	delete(r.controller.deployed, "mnist.openfaas-fn") // As one that could not be restored.
	same()
	r.deploy(t, func(d *types.FunctionDeployment) { d.Image = "mnist:2" })
	same()
}

func TestTenThousandFunctions(t *testing.T) {
	r := newRig(t, nil)
	const n = 10_000
	r.fill(t, n)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var listed []types.FunctionStatus
			if err := json.Unmarshal(r.do("GET", "/system/functions", "").Body.Bytes(), &listed); err != nil || len(listed) != n {
				t.Errorf("%d functions, %v", len(listed), err)
			}
			if !slices.IsSortedFunc(listed, func(a, b types.FunctionStatus) int {
				if a.Name < b.Name {
					return -1
				}
				return 1
			}) {
				t.Error("they are not sorted")
			}
		})
	}
	wg.Wait()
}

// BenchmarkList measures GET /system/functions: repeated, and after a deployment, when
// the cached parts must be made again.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{200, 10_000} {
		r := newRig(b, nil)
		r.fill(b, n)
		h := r.Handler()
		req := http.Request{Method: "GET", URL: &url.URL{Path: "/system/functions"}, Header: http.Header{}, Body: http.NoBody}
		w := &discard{header: http.Header{}}
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, &req)
			}
		})
		b.Run(fmt.Sprintf("%d-after-a-change", n), func(b *testing.B) {
			b.ReportAllocs()
			f := r.controller.deployed["function-00007.openfaas-fn"]
			for b.Loop() {
				r.publish(r.deployed(f, r.controller.dispatcher))
				h.ServeHTTP(w, &req)
			}
		})
	}
}
