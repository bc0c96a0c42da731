package dispatch

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
)

// answers sends a request at each step for a time, and counts the answers with an error status.
func (r *rig) answers(each, during time.Duration) (failed, all int) {
	for began := time.Now(); time.Since(began) < during; time.Sleep(each) {
		got, err := r.Invoke(r.t.Context(), request("x"))
		if err != nil {
			r.t.Error(err)
			continue
		}
		if all++; got.Status != http.StatusOK {
			failed++
		}
	}
	return failed, all
}

// An instance that answers 500 at once, beside one that is well: a few requests find it out, and a few
// more that it stays so. Then the controller replaces it.
func TestFailingInstanceIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second})
		r.start("a").status.Store(500)
		r.start("b")
		failed, all := r.answers(50*time.Millisecond, 20*time.Second)
		if failed > 8 || all < 300 {
			t.Errorf("%d of %d requests failed", failed, all)
		}
		if id := <-r.lost; id != "a" || !<-r.suspects {
			t.Errorf("%s is lost", id)
		}
		if s := r.Stats(); s.InTime != uint64(all-failed) || s.Late != 0 || s.Refused != 0 {
			t.Errorf("%d in time, %d late and %d refused of %d with %d errors", s.InTime, s.Late, s.Refused, all, failed)
		}
	})
}

// One that is well again after a second serves again.
func TestFailingInstanceHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second})
		a := r.start("a")
		a.status.Store(500)
		r.start("b")
		r.answers(50*time.Millisecond, 500*time.Millisecond)
		if !<-r.suspects {
			t.Error("it is not taken out of service")
		}
		a.status.Store(200)
		before := a.batches.Load()
		if failed, _ := r.answers(50*time.Millisecond, 5*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		if <-r.suspects || a.batches.Load() == before || len(r.lost) > 0 {
			t.Error("it does not serve again")
		}
	})
}

// Where all fail alike, nobody is lost: it is the model's or the client's doing. Nor is the only
// instance taken out, or the last one after the other has gone.
func TestInstancesThatFailAlikeStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second})
		a, b := r.start("a"), r.start("b")
		a.status.Store(500)
		b.status.Store(500)
		if failed, all := r.answers(20*time.Millisecond, 30*time.Second); failed != all || len(r.lost) > 0 {
			t.Errorf("%d of %d failed, %d instances are lost", failed, all, len(r.lost))
		}
		b.status.Store(200)
		r.answers(20*time.Millisecond, 20*time.Second) // a is lost now.
		if id := <-r.lost; id != "a" {
			t.Errorf("%s is lost", id)
		}
		r.Forget("a")
		b.status.Store(500)
		if failed, all := r.answers(20*time.Millisecond, 10*time.Second); failed != all || len(r.lost) > 0 {
			t.Errorf("of the last one %d of %d failed, %d are lost", failed, all, len(r.lost))
		}
		r.start("c")
		r.answers(20*time.Millisecond, 200*time.Millisecond) // b is taken out, and then the last.
		r.Forget("c")
		if _, err := r.Invoke(t.Context(), request("x")); err != nil {
			t.Errorf("the last instance does not serve: %v", err)
		}
		time.Sleep(time.Second) // A question may be open.
	})
}

// An answer that says when to come again is a sign of load, and no fault; nor is one that the request
// causes.
func TestWhatIsAFailure(t *testing.T) {
	later := map[string][]string{"Retry-After": {"1"}}
	for _, c := range []struct {
		status int
		header map[string][]string
		want   bool
	}{{200, nil, false}, {400, nil, false}, {500, nil, true}, {501, nil, false}, {502, nil, true}, {503, nil, true}, {503, later, false}, {504, nil, true}} {
		if got := health.Failing(c.status, c.header); got != c.want {
			t.Errorf("%d %v: %v", c.status, c.header, got)
		}
	}
}

// certificate returns one that nobody has signed.
func certificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// An instance with TLS stops after the handshake and reads nothing of the batch. A write with TLS
// cannot go on after a deadline; all the same the member has its answer soon after the objective.
func TestInstanceStopsWhileABatchIsWrittenWithTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objective = 200 * time.Millisecond
		server := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
		lost := make(chan time.Time, 1)
		d, _ := newDispatcher(t, batching.SharedName, Options{SLO: objective, ExchangeTimeout: minPatience,
			OnLost: func(cluster.InstanceID, error) { lost <- time.Now() },
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go tls.Server(theirs, server).HandshakeContext(ctx)
				c := tls.Client(ours, &tls.Config{InsecureSkipVerify: true})
				return c, c.HandshakeContext(ctx)
			}})
		d.Up(instance("stopped", 1), "fake", "stopped")
		began := time.Now()
		_, err := d.Invoke(t.Context(), request("x"))
		if took := time.Since(began); err == nil || took > objective+grace(objective) {
			t.Errorf("answered after %v: %v", took, err)
		}
		if took := (<-lost).Sub(began); took > giveUp+time.Second {
			t.Errorf("it is lost after %v", took)
		}
		d.Close()
		time.Sleep(time.Minute) // A question may be open.
	})
}

// The only instance is lost once it has answered nothing but errors for long. The next one, which does the
// same, stays, and the function is said to be the cause.
func TestOnlyInstanceIsReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second})
		r.start("a").status.Store(500)
		for began := time.Now(); len(r.lost) == 0 && time.Since(began) < time.Minute; synctest.Wait() {
			r.answers(100*time.Millisecond, 100*time.Millisecond)
		}
		if len(r.lost) != 1 || Problem(r.Dispatcher) != "" {
			t.Fatalf("%d are lost; %q", len(r.lost), Problem(r.Dispatcher))
		}
		<-r.lost
		r.Forget("a")
		next := r.start("b")
		next.status.Store(500)
		if failed, all := r.answers(100*time.Millisecond, 5*time.Minute); failed != all || len(r.lost) > 0 {
			t.Errorf("%d of %d failed, %d are lost", failed, all, len(r.lost))
		}
		if why := Problem(r.Dispatcher); !strings.Contains(why, "the function itself is the cause") {
			t.Errorf("%q", why)
		}
		next.status.Store(200)
		r.answers(100*time.Millisecond, 100*time.Millisecond)
		if why := Problem(r.Dispatcher); why != "" {
			t.Errorf("it answers well: %q", why)
		}
		time.Sleep(time.Second) // A question may be open.
	})
}
