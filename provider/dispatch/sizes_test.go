package dispatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// text is a request of n tokens, each of so many digits.
func text(n, digits int) *frame.Request {
	token := strings.Repeat("7", digits)
	data := strings.TrimSuffix(strings.Repeat(token+", ", n), ", ")
	return &frame.Request{Body: fmt.Appendf(nil, `{"inputs":[{"name":"ids","shape":[1,%d],"datatype":"INT64","data":[%s]},{"name":"mask","shape":[1,%d],"datatype":"INT64","data":[%s]}]}`, n, data, n, data)}
}

// The size of a request is estimated by what instances said of earlier ones: exactly if one looked alike,
// whatever its numbers were, and by the line through the others otherwise.
func TestSizesAreEstimatedByEarlierRequests(t *testing.T) {
	s := &sizes{}
	if got := s.estimate(s.lookAt(text(64, 3))); got != 0 {
		t.Errorf("no size is wanted, and it is %d", got)
	}
	s.wanted.Store(true)
	if got := s.estimate(s.lookAt(text(64, 3))); got != 0 {
		t.Errorf("without any request before, the size is %d", got)
	}
	seen := func(r *frame.Request, elements int64) { s.learn(looksOf([]*call{{look: s.lookAt(r)}}), elements) }
	seen(text(64, 3), 128)
	if got := s.estimate(s.lookAt(text(64, 5))); got != 128 {
		t.Errorf("other numbers of the same length have the size %d", got)
	}
	if got := s.estimate(s.lookAt(text(128, 3))); got < 200 || got > 300 {
		t.Errorf("twice the length after one request has the size %d", got)
	}
	seen(text(16, 3), 32)
	if got := s.estimate(s.lookAt(text(250, 4))); got != 500 {
		t.Errorf("on the line lies %d", got)
	}
	bytes := func(n int) *frame.Request { return &frame.Request{Body: make([]byte, n)} }
	if got := s.estimate(s.lookAt(bytes(1024))); got != 0 {
		t.Errorf("bytes have the size %d of texts", got)
	}
	seen(bytes(1024), 128)
	if got := s.estimate(s.lookAt(bytes(2048))); got != 256 {
		t.Errorf("twice the bytes have the size %d", got)
	}
	compressed := text(64, 3)
	compressed.Header = http.Header{"Content-Encoding": {"gzip"}}
	if got := s.estimate(s.lookAt(compressed)); got != 0 {
		t.Errorf("a compressed body has the size %d", got)
	}
	// A batch of several sizes says their mean.
	s.learn(looksOf([]*call{{look: s.lookAt(text(10, 1))}, {look: s.lookAt(text(30, 1))}}), 40)
	if got := s.estimate(s.lookAt(text(20, 1))); got != 40 {
		t.Errorf("behind a mean lies %d", got)
	}
	for i := range 3 * maxKnown {
		seen(text(i, 1), int64(2*i+1))
	}
	if len(s.known) > maxKnown {
		t.Errorf("%d sizes are kept", len(s.known))
	}
}

// proportional are the times of rows of so many elements.
type proportional float64

func (p proportional) Factor(_ int, elements int64) float64 { return float64(elements) / float64(p) }

func TestBatchesArePredictedByTheirSize(t *testing.T) {
	in := batching.Instance{Exec: []time.Duration{100 * time.Millisecond, 160 * time.Millisecond}, Sizes: proportional(100)}
	for _, c := range []struct {
		elements         []int64
		least, predicted time.Duration
	}{
		{[]int64{10}, 10 * time.Millisecond, 10 * time.Millisecond},
		{[]int64{10, 10}, 10 * time.Millisecond, 16 * time.Millisecond},
		{[]int64{0, 0}, 100 * time.Millisecond, 160 * time.Millisecond},
		{[]int64{10, 20}, 100 * time.Millisecond, 160 * time.Millisecond},
	} {
		b := &batch{}
		for _, n := range c.elements {
			b.calls = append(b.calls, &call{elements: n})
		}
		if b.predict(&in); b.least != c.least || b.predicted != c.predicted {
			t.Errorf("%v: %v and %v", c.elements, b.least, b.predicted)
		}
	}
}

// What an instance reports reaches the policy with the next request that looks alike.
func TestThePolicyGetsTheSizes(t *testing.T) {
	e := newEcho(t, nil)
	e.exec.Store(1000)
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	in := instance("a", 4)
	in.Sizes = proportional(12)
	d.Up(in, "unix", e.address)
	invoke(t, d, 1+warmUp)
	d.mu.Lock()
	defer d.mu.Unlock()
	if got := d.sizes.estimate(d.sizes.lookAt(request("x"))); got != 12 {
		t.Errorf("the size is %d", got)
	}
	if r := (&call{elements: 12}).asPolicy(); r.Elements != 12 {
		t.Errorf("the policy gets %+v", r)
	}
}
