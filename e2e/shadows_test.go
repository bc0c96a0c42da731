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
		if slices.ContainsFunc(all, func(a []byte) bool { return string(a) == "shadow" }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// shadowed is a function of a model that may have shadows, with an input of one row and the whole model's
// answer to it.
type shadowed struct {
	*place
	provider *daemon
	input    tensor.Tensor
	want     []float32
}

// deployShadowed deploys "photos" with one of the zoo's models, an objective, CPU for each instance, at most
// so many whole instances, and further annotations. It returns when the function has answered.
func deployShadowed(t *testing.T, model, slo, cpu, most string, annotations ...string) *shadowed {
	t.Helper()
	s := &shadowed{place: newPlace(t)}
	m, err := zoo.Make(model, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.bundle(t, model+":latest", m)
	s.provider = s.place.provider(t, suite.binary)
	f := function("photos", model+":latest", slo, append(annotations, "infer.keep-alive", "5s")...)
	f.Limits, f.Requests = &types.FunctionResources{CPU: cpu}, &types.FunctionResources{CPU: cpu}
	s.provider.deploy(t, scaled(f, "0", most))
	inputs, err := m.SampleInputs(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.input = inputs[0]
	s.provider.await(t, 5*time.Minute, "an answer", func() bool {
		s.want, err = askBinary(s.provider.own, s.provider.function("photos"), s.input)
		return err == nil
	})
	return s
}

// plan is what the function's description says of its instances.
func (s *shadowed) plan(t *testing.T) string {
	t.Helper()
	return (*s.provider.status(t, "photos").Annotations)["com.openfaas.infer.plan"]
}

// load sends the input so many times a second. Each answer must be the whole model's.
func (s *shadowed) load(t *testing.T, rate float64, duration time.Duration) <-chan []load.TargetResult {
	t.Helper()
	body, length, err := load.EncodeBinary([]tensor.Tensor{s.input})
	if err != nil {
		t.Fatal(err)
	}
	return beside(t, load.Options{Duration: duration, Seed: 1, Targets: []load.Target{{
		Name: "photos", URL: s.provider.function("photos"), Rate: rate, Header: http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}},
		Body: func(int) []byte { return body },
		Verify: func(_ int, answer []byte) error {
			return farFrom(s.want, floats(answer[max(0, len(answer)-4*len(s.want)):]))
		},
	}}})
}

// A body gets a shadow under load. Once it has computed rows, it and each that follows is killed within a
// second, mid-batch: no request is lost or gets a wrong answer. Both go with the load.
func TestShadowsKilledUnderLoad(t *testing.T) {
	if onCluster != nil {
		return // TestShadows of e2e/kubernetes deletes shadows there.
	}
	s := deployShadowed(t, "resnet-50", "10s", "800m", "1", "infer.shadow", "auto", "infer.max-batch", "8")
	p, d := s.place, s.provider
	d.await(t, 10*time.Minute, "the layers' profile", func() bool { return strings.Contains(s.plan(t), "holds the blocks") })
	rows := func() (n float64) {
		for _, m := range d.metrics(t)["faas_infer_shadow_rows_total"].GetMetric() {
			n += m.GetCounter().GetValue()
		}
		return n
	}
	// A slow machine starts few shadows during one load.
	const enough, rounds = 6, 8
	kills := 0
	for round := 0; round < rounds && kills < enough; round++ {
		var r load.TargetResult
		for done, ended := s.load(t, 25, 10*time.Second), false; !ended; {
			select {
			case all := <-done:
				r, ended = all[0], true
			case <-time.After(time.Second):
				if rows() == 0 {
					continue
				}
				for _, pid := range p.shadowsOf("photos") {
					if syscall.Kill(pid, syscall.SIGKILL) == nil {
						kills++
					}
				}
			}
		}
		t.Logf("%d shadows killed; %s; of %d requests %s; p50 %v, max %v", kills, s.plan(t), r.Requests, outcome(r), r.Latency.P50, r.Latency.Max)
		wantAnswered(t, r, http.StatusServiceUnavailable, http.StatusTooManyRequests)
	}
	if kills < 3 {
		t.Errorf("only %d shadows were there to kill", kills)
	}
	if rows() == 0 {
		t.Errorf("the provider shows no rows of shadows, and %v fallbacks", d.metrics(t)["faas_infer_shadow_fallbacks_total"])
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
