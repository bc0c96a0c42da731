package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// badBodies returns requests to identity that must get 400, with a word of the reason.
func badBodies(t *testing.T) map[string]struct {
	body   []byte
	header []string
	word   string
} {
	t.Helper()
	type request = struct {
		body   []byte
		header []string
		word   string
	}
	encoded := func(in tensor.Tensor, word string) request {
		body, length, err := load.EncodeBinary([]tensor.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		return request{body, []string{load.HeaderLength, strconv.Itoa(length)}, word}
	}
	shape := []int64{1, width}
	whole := encoded(tensor.Tensor{Name: "input", Type: tensor.FP32, Shape: shape, Data: payload(1)}, "header")
	return map[string]request{
		"wrong name":      encoded(tensor.Tensor{Name: "image", Type: tensor.FP32, Shape: shape, Data: payload(1)}, "image"),
		"wrong type":      encoded(tensor.Tensor{Name: "input", Type: tensor.Int32, Shape: shape, Data: payload(1)}, "FP32"),
		"unknown type":    encoded(tensor.Tensor{Name: "input", Type: "FP31", Shape: shape, Data: payload(1)}, "FP31"),
		"wrong rank":      encoded(tensor.Tensor{Name: "input", Type: tensor.FP32, Shape: []int64{width}, Data: payload(1)}, "shape"),
		"too few numbers": encoded(tensor.Tensor{Name: "input", Type: tensor.FP32, Shape: []int64{2, width}, Data: payload(1)}, "elements"),
		"no row":          encoded(tensor.Tensor{Name: "input", Type: tensor.FP32, Shape: []int64{0, width}}, "empty"),
		"too large":       encoded(tensor.Tensor{Name: "input", Type: tensor.FP32, Shape: []int64{1 << 40, 1 << 40}, Data: payload(1)}, "too large"),
		"negative":        encoded(tensor.Tensor{Name: "input", Type: tensor.FP32, Shape: []int64{-1, width}, Data: payload(1)}, "negative"),
		"no input":        {[]byte(`{"inputs":[]}`), nil, "input"},
		"not JSON":        {[]byte(`{"inputs":`), nil, ""},
		"empty":           {nil, nil, ""},
		"ragged":          {[]byte(`{"instances":[[1,2],[3]]}`), nil, ""},
		"text":            {[]byte(`{"instances":[["a"]]}`), nil, ""},
		"header too long": {whole.body, []string{load.HeaderLength, "1000000"}, ""},
		"header negative": {whole.body, []string{load.HeaderLength, "-1"}, ""},
	}
}

// An invalid request gets 400 with the reason. The other requests of its batch get their
// answers.
func TestBadRequestsDoNotSpoilTheirBatch(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, suite.binary, "--max-body", "65536")
	d.deploy(t, scaled(function("identity", "identity:latest", "20s"), "1", "1"))
	c := client(t)
	bad := badBodies(t)
	stop := make(chan struct{})
	var neighbours sync.WaitGroup
	for worker := range 16 {
		neighbours.Go(func() {
			for i := worker; ; i += 16 {
				select {
				case <-stop:
					return
				default:
				}
				if err := invokeIdentity(c, d.function("identity"), i); err != nil {
					t.Errorf("a neighbour: %v", err)
					return
				}
			}
		})
	}
	var wrong sync.WaitGroup
	for name, b := range bad {
		wrong.Go(func() {
			for range 20 {
				a, err := try(c, http.MethodPost, d.function("identity"), b.body, b.header...)
				if err != nil || a.status != http.StatusBadRequest || !strings.Contains(a.body, b.word) {
					t.Errorf("%s: %d %s %v", name, a.status, a.body, err)
					return
				}
			}
		})
	}
	wrong.Wait()
	close(stop)
	neighbours.Wait()
	if _, _, larger := d.batches(t, "identity"); !larger {
		t.Error("no batch had more than one request, which shows nothing of neighbours")
	}
	d.otherRefusals(t, c)
	d.stop(t)
}

// otherRefusals checks the refusals of the invoke route itself.
func (d *daemon) otherRefusals(t *testing.T, c *http.Client) {
	t.Helper()
	a := do(t, c, http.MethodPost, d.function("identity"), make([]byte, 65537))
	if a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d %s", a.status, a.body)
	}
	wantWords(t, a.body, "65536")
	// Without Content-Length the length is only known when it is read.
	r, err := http.NewRequest(http.MethodPost, d.function("identity"), struct{ *strings.Reader }{strings.NewReader(strings.Repeat("x", 70000))})
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a chunked body over the limit: %d", response.StatusCode)
	}
	if a := do(t, c, http.MethodPost, d.function("absent"), nil); a.status != http.StatusNotFound {
		t.Errorf("an unknown function: %d %s", a.status, a.body)
	}
	if a := do(t, c, http.MethodGet, d.function("identity"), nil); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET of a model: %d %s", a.status, a.body)
	}
	if a := do(t, c, http.MethodPost, d.function("identity")+"/v2/models/other/infer", nil); a.status != http.StatusNotFound {
		t.Errorf("another model's name: %d %s", a.status, a.body)
	}
}

// Clients that hang up while their requests wait leave nothing in the provider, whether no
// instance will ever start or their batches are in flight.
func TestClientsThatHangUp(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, suite.binary)
	d.deploy(t, scaled(function("ready", "identity:latest", "5s"), "1", "1"))
	d.awaitReady(t, "ready", 1)
	d.deploy(t, oversized("never"))
	if err := invokeIdentity(client(t), d.function("ready"), 1); err != nil {
		t.Fatal(err)
	}
	baseline := d.gauge(t, "go_goroutines")
	for _, name := range []string{"never", "ready"} {
		hangUp(t, d.function(name), 400)
	}
	d.await(t, patience, fmt.Sprintf("goroutines to be back at %v", baseline), func() bool {
		return d.gauge(t, "go_goroutines") <= baseline+4
	})
	if err := invokeIdentity(client(t), d.function("ready"), 2); err != nil {
		t.Error(err)
	}
	d.stop(t)
}

// oversized returns a function that no machine has room for. Its requests wait until the
// provider gives them up.
func oversized(name string) types.FunctionDeployment {
	f := function(name, "identity:latest", "1s")
	f.Limits = &types.FunctionResources{Memory: "64Ti"}
	return f
}

// hangUp sends requests, all of them at once, and cancels each after a different short
// time.
func hangUp(t *testing.T, url string, requests int) {
	t.Helper()
	c := client(t)
	body, length := identityBody(1)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(body)))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set(load.HeaderLength, strconv.Itoa(length))
			if response, err := c.Do(r); err == nil {
				response.Body.Close()
			}
		})
	}
	all.Wait()
	c.CloseIdleConnections()
}

// An objective that no execution can meet shows once the model has been measured. Requests
// are refused with that reason at once, and so is the next deployment.
func TestObjectiveBelowTheFastestExecution(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.slow(t)
	d := p.provider(t, suite.binary)
	never := function("never", "slow:latest", "100us")
	d.deploy(t, never)
	words := []string{"com.openfaas.slo.latency", "100µs", "the fastest"}
	// A busy machine may measure for longer than a request waits.
	wantWords(t, d.awaitLine(t, "the objective cannot be met", patience)["error"].(string), words...)
	body, length := identityBody(1)
	a := do(t, client(t), http.MethodPost, d.function("never"), body, load.HeaderLength, strconv.Itoa(length))
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantWords(t, a.body, words...)
	if a := d.put(t, http.MethodPut, never); a.status != http.StatusBadRequest {
		t.Errorf("deployed again: %d %s", a.status, a.body)
	} else {
		wantWords(t, a.body, words...)
	}
	if n := len(p.instances()); n != 0 {
		t.Errorf("%d instances for an objective that none can meet", n)
	}
	d.deploy(t, function("never", "slow:latest", "1s"))
	if err := invokeIdentity(client(t), d.function("never"), 2); err != nil {
		t.Errorf("with an objective that can be met: %v", err)
	}
	d.stop(t)
}
