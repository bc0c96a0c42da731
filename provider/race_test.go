package provider

import (
	"fmt"
	"sync"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// When many clients deploy the same name at once, store, controller and server agree on
// which deployment is the last.
func TestTheSameNameDeployedAtOnce(t *testing.T) {
	r := newRig(t, nil)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			method := []string{"POST", "PUT"}[i%2]
			w := r.do(method, "/system/functions", deployment(func(d *types.FunctionDeployment) { d.Image = fmt.Sprintf("mnist:%d", i) }))
			if w.Code != 202 && !(method == "PUT" && w.Code == 404) {
				t.Errorf("%s: %d %s", method, w.Code, w.Body)
			}
			if w := r.do("GET", "/system/functions", ""); w.Code != 200 {
				t.Errorf("list: %d", w.Code)
			}
		})
	}
	wg.Wait()
	kept, err := r.store.Function("openfaas-fn", "mnist")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := r.find(address{name: "mnist", namespace: "openfaas-fn"})
	if err != nil {
		t.Fatal(err)
	}
	runs := r.controller.deployed["mnist.openfaas-fn"]
	if kept.Revision != shown.Revision || runs.Revision != shown.Revision || kept.Deployment.Image != runs.Deployment.Image {
		t.Errorf("kept %d (%s), shown %d, running %d (%s)", kept.Revision, kept.Deployment.Image, shown.Revision, runs.Revision, runs.Deployment.Image)
	}
	if listed := r.sorted().byNamespace["openfaas-fn"]; len(listed) != 1 || listed[0] != shown {
		t.Errorf("listed %v", listed)
	}
}
