package batching

import (
	"fmt"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// An instance whose Config.Concurrency is k executes k batches at the same time. To a policy it
// is k instances, its streams, each of which executes one batch after the other. A driver tells a
// policy of all streams by [Up] and [Down]. A batch goes to a stream, and Done names it. What
// else a driver knows of an instance stays with the instance ([InstanceOf]).
//
// Exec then is the time of a batch while the other streams execute others. For example an
// instance with a concurrency of 3 and t(8) = 50 ms counts as three instances, of 160 requests/s
// each.

// streamMark stands between an instance's ID and the number of a stream. IDs are DNS labels,
// which cannot contain it.
const streamMark = "/"

// Stream is the ID by which a policy knows the i-th stream of an instance, from 0 on. The first
// one has the instance's own, so an instance that executes one batch at a time is its stream.
func Stream(id cluster.InstanceID, i int) cluster.InstanceID {
	if i == 0 {
		return id
	}
	return cluster.InstanceID(fmt.Sprint(id, streamMark, i))
}

// InstanceOf returns the instance of a stream.
func InstanceOf(stream cluster.InstanceID) cluster.InstanceID {
	id, _, _ := strings.Cut(string(stream), streamMark)
	return cluster.InstanceID(id)
}

// Up makes an instance's streams available to a policy, or changes them. Each gets its part of
// the instance's rate. A driver that lowers the concurrency tells the policy itself that a stream is
// gone.
func Up(p Policy, now time.Time, in Instance) {
	n := in.Config.Streams()
	if n == 1 {
		p.Up(now, in)
		return
	}
	id := in.ID
	in.Rate /= float64(n)
	for i := range n {
		in.ID = Stream(id, i)
		p.Up(now, in)
	}
}

// Down removes an instance's streams from a policy.
func Down(p Policy, now time.Time, in *Instance) {
	for i := range in.Config.Streams() {
		p.Down(now, Stream(in.ID, i))
	}
}
