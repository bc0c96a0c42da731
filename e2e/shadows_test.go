package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// shadowsOf lists the processes of a function's shadows.
func (p *place) shadowsOf(function string) (pids []int) {
	for _, pid := range p.instancesOf(function) {
		all := splitArguments([]byte(readAll(fmt.Sprintf("/proc/%d/cmdline", pid))))
		if slices.ContainsFunc(all, func(a []byte) bool { return string(a) == "--shadow" }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A body gets a shadow under load. The shadow is killed every second, mid-batch: no request is lost
// or gets a wrong answer. Both go with the load.
func TestShadowsKilledUnderLoad(t *testing.T) {
	if onCluster != nil {
		return // TestShadows of e2e/kubernetes deletes shadows there.
	}
	p := newPlace(t)
	m, err := zoo.Make("resnet-50", 1)
	if err != nil {
		t.Fatal(err)
	}
	p.bundle(t, "resnet:latest", m)
	d := p.provider(t, suite.binary)
	f := function("photos", "resnet:latest", "10s", "infer.shadow", "always", "infer.max-batch", "8", "infer.keep-alive", "5s")
	f.Limits, f.Requests = &types.FunctionResources{CPU: "800m"}, &types.FunctionResources{CPU: "800m"}
	d.deploy(t, scaled(f, "0", "1"))
	inputs, err := m.SampleInputs(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	in := inputs[0]
	var want []float32
	d.await(t, 5*time.Minute, "an answer", func() bool {
		want, err = askBinary(d.own, d.function("photos"), in)
		return err == nil
	})
	plan := func() string { return (*d.status(t, "photos").Annotations)["com.openfaas.infer.plan"] }
	d.await(t, 10*time.Minute, "the layers' profile", func() bool { return strings.Contains(plan(), "holds the blocks") })
	body, length, err := load.EncodeBinary([]tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	const rate, seconds = 25, 20
	done := beside(t, load.Options{Duration: seconds * time.Second, Seed: 1, Targets: []load.Target{{
		Name: "photos", URL: d.function("photos"), Rate: rate, Header: http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}},
		Body: func(int) []byte { return body },
		Verify: func(_ int, answer []byte) error {
			return farFrom(want, floats(answer[max(0, len(answer)-4*len(want)):]))
		},
	}}})
	kills := 0
	var r load.TargetResult
	for ended := false; !ended; {
		select {
		case all := <-done:
			r, ended = all[0], true
		case <-time.After(time.Second):
			for _, pid := range p.shadowsOf("photos") {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					kills++
				}
			}
		}
	}
	t.Logf("%d shadows killed; %s; of %d requests %s; p50 %v, max %v", kills, plan(), r.Requests, outcome(r), r.Latency.P50, r.Latency.Max)
	wantAnswered(t, r, http.StatusServiceUnavailable, http.StatusTooManyRequests)
	if kills < 3 {
		t.Errorf("only %d shadows were there to kill", kills)
	}
	if rows, lost := d.gauge(t, "faas_infer_shadow_rows_total"), d.metrics(t)["faas_infer_shadow_fallbacks_total"]; rows == 0 {
		t.Errorf("the provider shows %v rows of shadows, and %v fallbacks", rows, lost)
	}
	// Each empty instance that became a shadow was replaced.
	stoodBy := 0
	for _, line := range d.lines() {
		if line["message"] == "a process stands by" {
			stoodBy++
		}
	}
	if stoodBy < 3 {
		t.Errorf("%d empty instances for %d shadows", stoodBy, kills)
	}
	d.await(t, patience, "the pairs to go when they are idle", func() bool { return len(p.instancesOf("photos")) == 0 })
	d.stop(t)
	p.nothingLeft(t)
}
