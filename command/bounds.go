package command

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/shutdown"
)

const (
	// headsPart is the part of --max-held that unfinished heads may take in addition, queuePart
	// that of the queue's requests in hand with their answers, sparePart that of best-effort
	// ones, and answersPart that of the answers that are kept for equal requests.
	headsPart   = 8
	queuePart   = 4
	sparePart   = 16
	answersPart = 4
	// heldPerConnection is how much of --max-held there must be for each connection. One
	// without a request takes some 20 KiB.
	heldPerConnection = 64 << 10
	// leastConnections is the smallest default of --max-connections.
	leastConnections = 64
	// besideHeld is the memory in bytes of what is not held for requests.
	besideHeld = 128 << 20
)

// defaultMaxHeld returns a quarter of the memory that the process may take, in bytes, at most
// [provider.DefaultMaxHeld].
func defaultMaxHeld() int64 {
	memory := cgroup.Own().Memory
	if machine, _ := machineMemory(); memory == 0 || machine > 0 && machine < memory {
		memory = machine
	}
	if memory == 0 {
		return provider.DefaultMaxHeld
	}
	return min(memory/4, provider.DefaultMaxHeld)
}

// machineMemory returns the sizes of the machine's memory and swap space in bytes, 0 if they are unknown.
func machineMemory() (memory, swap int64) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, 0
	}
	return int64(info.Totalram) * int64(info.Unit), int64(info.Totalswap) * int64(info.Unit)
}

// largestModel returns the size in bytes of the largest model that this machine can run, 0 if it is unknown: at each
// execution the engine reads all weights.
func largestModel() int64 {
	memory, swap := machineMemory()
	return memory + swap
}

// defaultMaxConnections returns how many connections clients may open if the process may open
// so many descriptors: half of them, because each request may need another one for its instance.
func defaultMaxConnections(descriptors uint64, maxHeld int64) int {
	most := int64(min(descriptors/2, 1<<20))
	return int(min(max(leastConnections, maxHeld/heldPerConnection), most))
}

// collectorLimit returns the memory in bytes above which the garbage collector runs as often as
// it must.
func collectorLimit(maxHeld int64) int64 { return maxHeld*7/4 + besideHeld }

// queueHeld returns the bytes that ordinary and best-effort requests of the queue may hold.
func queueHeld(maxHeld int64) (ordinary, spare int64) {
	return min(maxHeld/queuePart, queue.DefaultMaxHeld), min(maxHeld/sparePart, queue.DefaultMaxHeld/4)
}

// How long the steps of stopping may take, in addition to --drain. hurry replaces
// stopInstances and closePlatform after the user's second signal. A step that ignores its
// limit is left behind after [shutdown.Lag]: the process ends, and the next provider finds what
// this one has left.
const (
	giveBack      = 4 * time.Second
	closeTimeout  = 2 * time.Second
	stopInstances = 10 * time.Second
	closePlatform = 4 * time.Second
	hurry         = 2 * time.Second
)

// stopping is how much longer than --drain stopping takes at most: giving requests back to
// the queue, ending the gateway, closing connections, stopping instances and closing the
// platform. The pods' terminationGracePeriodSeconds must be long enough for both.
const stopping = giveBack + gatewayPatience + closeTimeout + stopInstances + closePlatform + 3*shutdown.Lag
