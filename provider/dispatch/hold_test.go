package dispatch

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/provider/web"
)

// A large answer is counted before it is read. One that finds no memory is refused, and its
// instance goes on.
func TestAnswersAreCountedBeforeTheyAreRead(t *testing.T) {
	full := &web.Error{Status: http.StatusServiceUnavailable, Text: "full"}
	var taken, held int64
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience, Hold: func(n int64) (func(), error) {
		if n > 1<<20 {
			return nil, full
		}
		taken, held = taken+n, held+n
		return func() { held -= n }, nil
	}})
	e := newEcho(t, nil)
	d.Up(instance("a", 1), "unix", e.address)
	for _, c := range []struct {
		size    int
		counted bool
		err     error
	}{
		{100, false, nil},
		{counted + 1, true, nil},
		{2 << 20, false, full},
		{100, false, nil},
	} {
		taken = 0
		got, err := d.Invoke(t.Context(), request(strings.Repeat("x", c.size)))
		if !errors.Is(err, c.err) || err == nil && len(got.Body) != c.size || taken > int64(c.size) != c.counted || held != 0 {
			t.Errorf("%d bytes: error %v, want %v; %d were counted, %d still are", c.size, err, c.err, taken, held)
		}
	}
}
