package dispatch

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// sendLarge is send for a body of n bytes that shows, until the request is answered and
// longer if something keeps it. leave hangs up.
func (r *rig) sendLarge(n int) (body weak.Pointer[byte], done chan error, leave context.CancelFunc) {
	q := request(strings.Repeat("x", n))
	body, done = weak.Make(&q.Body[0]), make(chan error, 1)
	ctx, leave := context.WithCancel(r.t.Context())
	go func() {
		_, err := r.Invoke(ctx, q)
		done <- err
	}()
	return body, done, leave
}

func kept(body weak.Pointer[byte]) bool {
	runtime.GC()
	return body.Value() != nil
}

// A batch of several exchanges answers a member as soon as its exchange has ended, also the
// member that leads. It then keeps nothing of that one's body, whose memory the caller gives
// back.
func TestMembersOfEarlierExchangesAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Minute})
		body, leading, _ := r.sendLarge(maxExchange)
		synctest.Wait()
		other, later, _ := r.sendLarge(maxExchange)
		synctest.Wait()
		gate := make(chan struct{}, 2)
		a := r.serve("a")
		a.echo.gate = gate
		r.Up(instance("a", 4), "fake", "a")
		began := time.Now()
		gate <- struct{}{}
		if err := <-leading; err != nil || time.Since(began) > 0 {
			t.Errorf("the leader: %v after %v, want its answer at once", err, time.Since(began))
		}
		synctest.Wait()
		if kept(body) {
			t.Error("the leader's body is kept")
		}
		if !kept(other) {
			t.Error("the other's body is gone before its exchange has ended")
		}
		gate <- struct{}{}
		if err := <-later; err != nil {
			t.Errorf("the other: %v", err)
		}
	})
}

// A request that waits for another instance keeps nothing of what was not sent to the first.
func TestRequestKeepsNoBodyOfItsFormerBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second, ColdWait: time.Minute})
		_, leading, _ := r.sendLarge(1 << 20)
		synctest.Wait()
		body, left, leave := r.sendLarge(1 << 20)
		synctest.Wait()
		a := r.serve("a")
		a.stop() // It reads nothing.
		r.Up(instance("a", 4), "fake", "a")
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the request whose client has left: %v", err)
		}
		synctest.Wait()
		if kept(body) {
			t.Error("its body is kept")
		}
		r.start("b")
		if err := <-leading; err != nil {
			t.Error(err)
		}
		a.goOn()
		time.Sleep(time.Second)
	})
}
