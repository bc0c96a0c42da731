package e2e

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// used is what a description says of a function with shadows that start where they are the cheapest: how many
// there are, which part they hold, and why, in MiB.
var used = regexp.MustCompile(`shadows: (\d+) for (\d+) instances; beside \d+m one holds the blocks [\d:,]+ with \d+ MiB of weights, and takes \d+ MiB; a whole instance needs \d+ MiB; they start where that is the cheapest: a node's instances share the weights, so a shadow takes (\d+) MiB more and a whole instance (\d+)`)

// A function that may have shadows serves a burst by whatever is the cheapest. Its answers are right, and
// its description says what is used and why.
func TestCheapestWayUnderBurst(t *testing.T) {
	if onCluster != nil {
		return // Shadows start on one machine only.
	}
	p := newPlace(t)
	m, err := zoo.Make("mobilenet", 1)
	if err != nil {
		t.Fatal(err)
	}
	p.bundle(t, "mobilenet:latest", m)
	d := p.provider(t, suite.binary)
	f := function("photos", "mobilenet:latest", "2s", "infer.shadow", "auto", "infer.max-batch", "4", "infer.keep-alive", "5s")
	f.Limits, f.Requests = &types.FunctionResources{CPU: "500m"}, &types.FunctionResources{CPU: "500m"}
	d.deploy(t, scaled(f, "0", "3"))
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
	d.await(t, 10*time.Minute, "the layers' profile", func() bool { return used.MatchString(plan()) })
	body, length, err := load.EncodeBinary([]tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	done := beside(t, load.Options{Duration: 8 * time.Second, Seed: 1, Targets: []load.Target{{
		Name: "photos", URL: d.function("photos"), Rate: 60, Header: http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}},
		Body: func(int) []byte { return body },
		Verify: func(_ int, answer []byte) error {
			return farFrom(want, floats(answer[max(0, len(answer)-4*len(want)):]))
		},
	}}})
	most := 0
	var r load.TargetResult
	for ended := false; !ended; {
		select {
		case all := <-done:
			r, ended = all[0], true
		case <-time.After(200 * time.Millisecond):
			most = max(most, len(p.instancesOf("photos")))
			if said := used.FindStringSubmatch(plan()); said == nil {
				t.Errorf("described as %q", plan())
			}
		}
	}
	t.Logf("up to %d processes; %s; of %d requests %s; p50 %v", most, plan(), r.Requests, outcome(r), r.Latency.P50)
	wantAnswered(t, r, http.StatusServiceUnavailable, http.StatusTooManyRequests)
	if r.Latency.P50 <= 0 {
		t.Errorf("nothing was answered: %s", outcome(r))
	}
	if most < 2 {
		t.Errorf("the burst found %d processes", most)
	}
	d.await(t, patience, "the instances to go when they are idle", func() bool { return len(p.instancesOf("photos")) == 0 })
	d.stop(t)
	p.nothingLeft(t)
}
