package batching

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// An instance that executes three batches at the same time gets three, each with its own Done,
// and no fourth ahead. Its part of the load is divided among its streams.
func TestStreams(t *testing.T) {
	for _, name := range Names() {
		p, err := New(name, Options{SLO: time.Second, MaxBatch: 1})
		if err != nil {
			t.Fatal(err)
		}
		in := Instance{ID: "a", Config: cluster.Config{Batch: 1, Concurrency: 3}, Exec: affine(1, ms(10), 0), Rate: 90}
		Up(p, epoch, in)
		for id := range RequestID(8) {
			p.Add(epoch, Request{ID: id + 1, Deadline: epoch.Add(time.Second)})
		}
		var streams []cluster.InstanceID
		take := func(now time.Time) (n int) {
			for _, a := range p.Actions(now) {
				if InstanceOf(a.Instance) != "a" || len(a.Dispatch) != 1 {
					t.Fatalf("%s: %+v", name, a)
				}
				streams = append(streams, a.Instance)
				n++
			}
			return n
		}
		if n := take(epoch); n != 3 {
			t.Errorf("%s: an instance that executes 3 batches at the same time gets %d", name, n)
		}
		slices.Sort(streams)
		if !slices.Equal(streams, []cluster.InstanceID{"a", "a/1", "a/2"}) {
			t.Errorf("%s: the batches go to %q", name, streams)
		}
		if n := take(epoch.Add(ms(9.9))); n != 0 {
			t.Errorf("%s: %d more batches before one is done", name, n)
		}
		now := epoch.Add(ms(10))
		p.Done(now, "a/1")
		if n := take(now); n != 1 || streams[3] != "a/1" {
			t.Errorf("%s: after one is done, %d batches go to %q", name, n, streams[3:])
		}
		Down(p, now, &in)
		p.Done(now, "a")
		if n := take(now); n != 0 || p.Waiting() != 4 {
			t.Errorf("%s: %d batches for an instance that is down, %d wait", name, n, p.Waiting())
		}
	}
}

// With several streams the queue serves what as many instances do.
func TestStreamsServeAsInstances(t *testing.T) {
	const slo = 50 * time.Millisecond
	m := models[1]
	three := m.pool(3, slo)
	rate := 0.9 * three.capacity()
	one := m.pool(1, slo)
	one.members[0].Config.Concurrency = 3
	var streams []Instance
	Up(collector(func(in Instance) { streams = append(streams, in) }), epoch, one.members[0])
	one.members = streams
	a, b := three.offer(SharedName, rate, 5_000), one.offer(SharedName, rate, 5_000)
	if b.within < a.within-0.005 {
		t.Errorf("of %.0f requests/s three instances answer %.4f in time, one with three streams %.4f", rate, a.within, b.within)
	}
}

// collector is a policy that only takes in instances.
type collector func(Instance)

func (c collector) Up(_ time.Time, in Instance)        { c(in) }
func (c collector) Add(time.Time, Request)             {}
func (c collector) Cancel(time.Time, RequestID) bool   { return false }
func (c collector) Down(time.Time, cluster.InstanceID) {}
func (c collector) Done(time.Time, cluster.InstanceID) {}
func (c collector) Actions(time.Time) []Action         { return nil }
func (c collector) Next() (at time.Time, ok bool)      { return at, false }
func (c collector) Waiting() int                       { return 0 }
