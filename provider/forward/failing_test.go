package forward

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// answers sends a request at each step for a time, and counts those with an error status. Each request
// takes the instances in turn.
func (s *stoppable) answers(each, during time.Duration) (failed, all int) {
	for began := time.Now(); time.Since(began) < during; time.Sleep(each) {
		got, err := s.Invoke(s.t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}})
		if err != nil {
			s.t.Error(err)
			continue
		}
		if all++; got.Status != http.StatusOK {
			failed++
		}
	}
	return failed, all
}

// An instance that answers 500 gets a few requests until that is known, and some more that show
// whether it stays so. Then it is lost, and replaced.
func TestFailingInstanceIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		s.start("a").status.Store(500)
		s.start("b")
		failed, all := s.answers(20*time.Millisecond, 20*time.Second)
		if failed > 12 || all < 900 {
			t.Errorf("%d of %d requests failed", failed, all)
		}
		if id := <-s.lost; id != "a" || !<-s.suspects {
			t.Errorf("%s is lost", id)
		}
	})
}

// One that is well again serves again.
func TestFailingInstanceHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		a := s.start("a")
		a.status.Store(500)
		s.start("b")
		s.answers(20*time.Millisecond, 500*time.Millisecond)
		if !<-s.suspects {
			t.Error("it still gets requests")
		}
		a.status.Store(0)
		if failed, _ := s.answers(20*time.Millisecond, 5*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		if <-s.suspects || len(s.lost) > 0 || len(s.ready) != 2 {
			t.Errorf("%d instances serve", len(s.ready))
		}
	})
}

// Where all fail alike none is lost, and there is always one that serves: the program or its clients
// are the cause.
func TestInstancesThatFailAlikeStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		for _, id := range []string{"a", "b", "c"} {
			s.start(id).status.Store(500)
		}
		if failed, all := s.answers(20*time.Millisecond, time.Minute); failed != all || len(s.lost) > 0 {
			t.Errorf("%d of %d failed, %d instances are lost", failed, all, len(s.lost))
		}
	})
}

// The last instance serves, however it answers.
func TestLastInstanceServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		s.start("a").status.Store(500)
		s.start("b")
		s.answers(20*time.Millisecond, 500*time.Millisecond)
		if len(s.ready) != 1 {
			t.Fatalf("%d instances serve", len(s.ready))
		}
		s.Forget("b")
		if failed, all := s.answers(20*time.Millisecond, 5*time.Second); failed != all || len(s.lost) > 0 {
			t.Errorf("%d of %d failed", failed, all)
		}
	})
}

// The only instance is lost once it has answered nothing but errors for long. The next one, which does the
// same, stays, and the function is said to be the cause.
func TestOnlyInstanceIsReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		s.start("a").status.Store(500)
		for began := time.Now(); len(s.lost) == 0 && time.Since(began) < time.Minute; synctest.Wait() {
			s.answers(100*time.Millisecond, 100*time.Millisecond)
		}
		if len(s.lost) != 1 || s.Problem() != "" {
			t.Fatalf("%d are lost; %q", len(s.lost), s.Problem())
		}
		<-s.lost
		s.Forget("a")
		next := s.start("b")
		next.status.Store(500)
		if failed, all := s.answers(100*time.Millisecond, 5*time.Minute); failed != all || len(s.lost) > 0 {
			t.Errorf("%d of %d failed, %d are lost", failed, all, len(s.lost))
		}
		if why := s.Problem(); !strings.Contains(why, "the function itself is the cause") {
			t.Errorf("%q", why)
		}
		next.status.Store(200)
		s.answers(100*time.Millisecond, 100*time.Millisecond)
		if why := s.Problem(); why != "" {
			t.Errorf("it answers well: %q", why)
		}
		time.Sleep(time.Second) // A question may be open.
	})
}
