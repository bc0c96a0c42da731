package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/e2e/fakecluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/profiler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behaviour says what one instance of the fake backend does.
type behaviour = fakecluster.Behaviour

const (
	// coldStart is how long the fake's instances take to be ready, stopTime to leave.
	coldStart = fakecluster.ColdStart
	stopTime  = fakecluster.StopTime
)

// fakeBackend is a cluster in memory. Its instances answer batches.
type fakeBackend struct {
	*fakecluster.Backend
	// takes returns the factor by which an instance's batches are slower than the
	// model. Instances report their times only if it is not nil.
	takes func(cluster.Config) float64
	// elements is the size of the rows of all requests, 0 if instances report none. Batches of
	// models of texts take in proportion to it.
	elements int64
	// texts: instances report the rows of texts.
	texts atomic.Bool
	// disturbed is a node on which batches take three times as long.
	disturbed string
	// resized lists the configs that Resize got; resizeFails makes it fail.
	resized     []cluster.Config
	resizeFails bool
	// parked counts the calls of Park; parkFails makes them fail.
	parked    int
	parkFails bool
	// slowly is how long Park and Resize take.
	slowly time.Duration
}

func newFakeBackend(t testing.TB) *fakeBackend {
	b := &fakeBackend{Backend: fakecluster.New(t, 64<<30)}
	b.Serve = b.serve
	return b
}

func (b *fakeBackend) living() []cluster.Instance                          { return b.Living() }
func (b *fakeBackend) asked() int                                          { return b.Asked() }
func (b *fakeBackend) crash(id cluster.InstanceID, reason string)          { b.Crash(id, reason) }
func (b *fakeBackend) becomes(f func(int, cluster.InstanceSpec) behaviour) { b.Becomes(f) }

// fails counts a call that takes slowly, and reports whether it is to fail.
func (b *fakeBackend) fails(count func() (fails bool)) bool {
	time.Sleep(b.slowly)
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return count()
}

// Resize changes an instance's quota, unless resizeFails is set.
func (b *fakeBackend) Resize(ctx context.Context, id cluster.InstanceID, config cluster.Config) error {
	if b.fails(func() bool { b.resized = append(b.resized, config); return b.resizeFails }) {
		return errors.New("no such instance")
	}
	return b.Backend.Resize(ctx, id, config)
}

// Park takes an instance's share, unless parkFails is set.
func (b *fakeBackend) Park(ctx context.Context, id cluster.InstanceID) error {
	if b.fails(func() bool { b.parked++; return b.parkFails }) {
		return errors.New("no such instance")
	}
	return b.Backend.Park(ctx, id)
}

// widen gives the node so many millicores.
func (b *fakeBackend) widen(cpu int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Machines[0].Total.CPU = cpu
}

// looks counts the calls of Nodes.
func (b *fakeBackend) looks() int {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Looks
}

// exec returns how long an instance takes for a batch, and whether it reports it. If it
// does, it has the right number of threads, and pauses as long as a loaded instance may.
func (b *fakeBackend) exec(in *fakecluster.Instance, batch int) (took time.Duration, reported bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if in.Parked {
		b.Test.Errorf("%s is given a batch while it is parked", in.ID)
	}
	if in.Config.GPU > 0 {
		return gpuTime(in.Model, batch, in.Config.GPU), b.takes != nil
	}
	if b.takes == nil {
		return execTime(in.Model, batch, 1), false
	}
	took = time.Duration(b.takes(in.Config) * float64(execTime(in.Model, batch, in.Config.Threads())))
	if in.Node == b.disturbed {
		took *= 3
	}
	if b.elements > 0 {
		took = took * time.Duration(b.elements) / 256
	}
	if quota := profiler.QuotaPeriod * time.Duration(in.Config.CPU) / 1000; in.Config.CPU < 1000 {
		took += (took + quota - 1) / quota * (profiler.QuotaPeriod - quota)
	}
	return took, true
}

// take sets how long batches take from now on.
func (b *fakeBackend) take(takes func(cluster.Config) float64) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.takes = takes
}

// lengthen sets the size of the rows of all requests from now on.
func (b *fakeBackend) lengthen(elements int64) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.elements = elements
}

// size is the size of the rows of all requests.
func (b *fakeBackend) size() int64 {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.elements
}

// disturb slows down the instances of a node from now on, of none if it is "".
func (b *fakeBackend) disturb(node string) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.disturbed = node
}

// serve answers every member with the function's prepared model and its own
// body.
func (b *fakeBackend) serve(in *fakecluster.Instance, conn net.Conn) {
	reader := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil || in.Broken {
			return
		}
		if in.Hung {
			<-in.Context.Done()
			return
		}
		if request.URL.Path == "/_/health" {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		members, err := frame.DecodeRequests(body)
		if err != nil {
			return
		}
		took, reported := b.exec(in, len(members))
		time.Sleep(took)
		report := ""
		if reported {
			report = fmt.Sprintf("%s: %d\r\n", frame.ExecHeader, took.Microseconds())
			if elements := b.size(); elements > 0 {
				report += fmt.Sprintf("%s: %d\r\n", frame.ElementsHeader, elements)
			}
			if b.texts.Load() {
				report += fmt.Sprintf("%s: 1.00\r\n", frame.RowsHeader)
			}
		}
		answers := make([]frame.Response, len(members))
		for i, m := range members {
			answers[i] = frame.Response{Status: 200, Header: http.Header{}, Body: []byte(in.Model + ":" + string(m.Body))}
		}
		buffers, length := frame.EncodeResponses(answers)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n", report, length)
		if _, err := buffers.WriteTo(conn); err != nil {
			return
		}
	}
}
