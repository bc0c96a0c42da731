package provider

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// waiting is an ordinary function's dispatcher whose requests wait for an instance.
type waiting struct {
	dispatcherFunc
	release chan struct{}
}

func (f waiting) Forward(_ http.ResponseWriter, _ *http.Request, _ string, _ time.Duration, keep func(int64) error) int {
	if err := keep(1 << 10); err != nil {
		panic(err)
	}
	<-f.release
	return 200
}

// The heads of requests that wait for an ordinary function count as held, as those for models
// do, and so does what is kept of their bodies, until the requests end.
func TestHeadsOfOrdinaryRequestsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := waiting{echo, make(chan struct{})}
		r := newRig(t, func(o *Options) {
			o.Bodies = web.NewBodyReader(100<<10, DefaultBodyTimeout, 200<<10)
			o.Controller.(*fakeController).dispatcher = f
		})
		r.deploy(t, nil)
		head := strings.Repeat("x", 50<<10)
		var begun []chan *httptest.ResponseRecorder
		for range 2 {
			done := make(chan *httptest.ResponseRecorder, 1)
			begun = append(begun, done)
			go func() { done <- r.do("GET", "/function/mnist", "", "X-Large", head) }()
			synctest.Wait()
		}
		if held := r.bodies.Held(); held < 2*51<<10 {
			t.Errorf("two requests with heads of 50 KiB and 1 KiB of their bodies hold %d bytes", held)
		}
		wantSentence(t, r.do("GET", "/function/mnist", "", "X-Large", head), 429, "memory")
		close(f.release)
		for _, done := range begun {
			if w := <-done; w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if held := r.bodies.Held(); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
	})
}
