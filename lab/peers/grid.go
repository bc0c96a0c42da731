package peers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Setting is one point of a peer's grid.
type Setting struct {
	// Name is a part of the setting's URL.
	Name string
	// MaxBatch is the largest batch, 1 for no batching. Delay is how long a batch may
	// wait.
	MaxBatch int
	Delay    time.Duration
	// Workers is the number of workers; [Peer] has the peer's name for it.
	Workers int
	// Preferred is Triton's preferred batch, 0 for none.
	Preferred int
}

// setting returns a Setting with its name.
func setting(maxBatch int, delay time.Duration, workers int) Setting {
	return Setting{Name: fmt.Sprintf("b%dd%dw%d", maxBatch, delay.Milliseconds(), workers), MaxBatch: maxBatch, Delay: delay, Workers: workers}
}

// named returns the setting with a name that no other has.
func (x Setting) named() Setting {
	x.Name = fmt.Sprintf("b%dd%dw%dp%d", x.MaxBatch, x.Delay.Microseconds(), x.Workers, x.Preferred)
	return x
}

// Peer is a model server that the provider is compared with.
type Peer struct {
	// Name is its name in results.
	Name string
	// engine is the environment that its requirements, services/NAME.txt, are added to.
	engine string
	// delay and workers are the peer's names for Setting.Delay and Setting.Workers.
	delay, workers string
	// restarts is set if another number of workers needs another server.
	restarts bool
	// grid returns its settings for an objective, in the order of trials.
	grid func(slo time.Duration) []Setting
	// ways are the ways to send each payload, in the order of trials.
	ways map[Payload][]Way
	// without says what it cannot do here, and why; "" if it can do everything.
	without string
	// start writes the server's files and returns the server.
	start func(s *site) (server, error)
}

// Batch sizes, and the divisors of the objective that give the times that batches wait. For
// 50 ms, 1/50 and 1/10 are 1 ms and 5 ms, the values in most of the peers' documents.
const (
	largeBatch, smallBatch = 32, 8
	shortDelay, longDelay  = 50, 10
)

// batches returns the grid of peers whose batches wait for a fixed time.
func batches(slo time.Duration, workers, others int) []Setting {
	return []Setting{
		setting(largeBatch, slo/shortDelay, workers), setting(largeBatch, slo/longDelay, workers),
		setting(smallBatch, slo/shortDelay, workers), setting(1, 0, workers), setting(largeBatch, slo/shortDelay, others),
	}
}

// all are the peers, in the order of measurement.
var all = []Peer{
	{
		Name: "mlserver", engine: "mlserver", delay: "max_batch_time", workers: "parallel_workers", restarts: true,
		grid:    func(slo time.Duration) []Setting { return batches(slo, 0, 1) },
		ways:    map[Payload][]Way{Binary: {grpcWay}, JSON: {v2JSONWay}, GRPC: {grpcWay}},
		without: "it is no longer maintained; its REST takes no binary tensors, and PyPI has no ONNX runtime of it: binary is gRPC with raw contents, the runtime is a custom one",
		start:   startMLServer,
	},
	{
		Name: "bentoml", engine: "python", delay: "max_latency_ms", workers: "threads (0: async)",
		grid: func(slo time.Duration) []Setting {
			return []Setting{
				setting(largeBatch, slo, 0), setting(largeBatch, slo/2, 0), setting(smallBatch, slo, 0), setting(1, 0, 0), setting(largeBatch, slo, 1),
			}
		},
		ways:    map[Payload][]Way{Binary: {fileWay, rowWay}, JSON: {rowWay}},
		without: "it has no gRPC any more and refuses its own pickles from clients: binary is a file in a form, answered in JSON, or JSON where that is faster",
		start:   startBentoML,
	},
	{
		Name: "ray", engine: "python", delay: "batch_wait_timeout_s", workers: "more replicas",
		grid: func(slo time.Duration) []Setting {
			return batches(slo, 0, 0)[:4]
		},
		ways:    map[Payload][]Way{Binary: {rawWay}, JSON: {namedWay}, GRPC: {grpcWay}},
		without: "it has no protocol for tensors: binary is the inputs' bytes, JSON an array for each input, both over HTTP through HAProxy; its gRPC carries the user's own messages, here the Open Inference Protocol's; one core has one replica",
		start:   startRay,
	},
	{
		Name: "kserve", engine: "python", delay: "no wait", workers: "threads (0: async)",
		grid:    func(time.Duration) []Setting { return []Setting{setting(1, 0, 0), setting(1, 0, 1)} },
		ways:    map[Payload][]Way{Binary: {v2BinaryWay, grpcWay}, JSON: {v2JSONWay}, GRPC: {grpcWay}},
		without: "its server does not batch (a sidecar on Kubernetes does, for its first protocol only); its image for ONNX is Triton",
		start:   startKServe,
	},
	{
		Name: "litserve", engine: "python", delay: "batch_timeout", workers: "workers_per_device", restarts: true,
		grid:    func(slo time.Duration) []Setting { return batches(slo, 1, 2) },
		ways:    map[Payload][]Way{Binary: {base64Way, bareWay}, JSON: {bareWay}},
		without: "it has no protocol for tensors and no gRPC, and a file in a form does not reach its workers: binary is base64 in JSON, answered in JSON, or JSON where that is faster",
		start:   startLitServe,
	},
	{
		Name: "triton", engine: "triton", delay: "max_queue_delay_microseconds", workers: "instances",
		grid:    func(slo time.Duration) []Setting { return batches(slo, 1, 2) },
		ways:    map[Payload][]Way{Binary: {grpcWay, v2BinaryWay}, JSON: {v2JSONWay}, GRPC: {grpcWay}},
		without: "the wheel on PyPI (nvidia-pytriton) has no onnxruntime backend, only Python's: the model runs in it, with the same ONNX Runtime",
		start:   startTriton,
	},
}

// Names returns the names of the peers, in the order of measurement.
func Names() (names []string) {
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}

// None is the name in [Bench.Peers] that stands for no peer: faas-infer is measured alone.
const None = "none"

// choose returns the peers with these names, all if names is empty.
func choose(names []string) ([]Peer, error) {
	if len(names) == 0 {
		return all, nil
	}
	if slices.Equal(names, []string{None}) {
		return nil, nil
	}
	var chosen []Peer
	for _, name := range names {
		i := slices.IndexFunc(all, func(p Peer) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--peers: there is no peer %q; the peers are %s", name, strings.Join(Names(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// point is a setting and the way to send requests to it.
type point struct {
	Setting
	way Way
}

// groups splits the grid into the settings that one server can have, in their order.
func (p Peer) groups(slo time.Duration) (groups [][]Setting) {
	for _, x := range p.grid(slo) {
		n := len(groups)
		if n > 0 && (!p.restarts || groups[n-1][0].Workers == x.Workers) {
			groups[n-1] = append(groups[n-1], x)
			continue
		}
		groups = append(groups, []Setting{x})
	}
	return groups
}

// knobs is the number of settings that a user must find for an objective: those that differ in the grid, and the
// protocol where several carry a payload.
func (p Peer) knobs(slo time.Duration) (n int) {
	batch, delay, workers := map[int]bool{}, map[time.Duration]bool{}, map[int]bool{}
	for _, x := range p.grid(slo) {
		batch[x.MaxBatch], workers[x.Workers] = true, true
		if x.MaxBatch > 1 { // The others do not wait.
			delay[x.Delay] = true
		}
	}
	for _, values := range []int{len(batch), len(delay), len(workers), len(p.ways[Binary])} {
		if values > 1 {
			n++
		}
	}
	return n
}

// describeGrid lists the settings for an objective, in the order of trials.
func (p Peer) describeGrid(slo time.Duration) string {
	var texts []string
	for _, x := range p.grid(slo) {
		texts = append(texts, fmt.Sprintf("%d/%v/%d", x.MaxBatch, x.Delay, x.Workers))
	}
	return fmt.Sprintf("max batch/%s/%s, for an SLO of %v: %s", p.delay, p.workers, slo, strings.Join(texts, ", "))
}

// describe returns a point in the peer's terms.
func (p Peer) describe(x point) string {
	text := fmt.Sprintf("%s, max batch %d, %s %v, %s %d", x.way.Name, x.MaxBatch, p.delay, x.Delay, p.workers, x.Workers)
	if x.Preferred > 0 {
		text += fmt.Sprintf(", preferred_batch_size %d", x.Preferred)
	}
	return text
}
