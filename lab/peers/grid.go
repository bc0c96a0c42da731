package peers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Setting is one point of a peer's grid.
type Setting struct {
	// Name is part of the address at which the setting is served.
	Name string
	// MaxBatch is the largest batch, 1 for none; Delay how long a batch may wait.
	MaxBatch int
	Delay    time.Duration
	// Workers is what the peer's own word for it is; see [Peer].
	Workers int
}

// setting makes one with its name.
func setting(maxBatch int, delay time.Duration, workers int) Setting {
	return Setting{fmt.Sprintf("b%dd%dw%d", maxBatch, delay.Milliseconds(), workers), maxBatch, delay, workers}
}

// Peer is one of the systems beside which ours is measured.
type Peer struct {
	// Name is how results speak of it.
	Name string
	// engine is the environment that its requirements, services/NAME.txt, are added to.
	engine string
	// delay is what Setting.Delay is to the peer, workers what Setting.Workers is.
	delay, workers string
	// restarts: another number of workers is another server.
	restarts bool
	// grid are its settings for an objective, the one to begin with first.
	grid func(slo time.Duration) []Setting
	// ways are how each payload may come to it, the one to begin with first.
	ways map[Payload][]Way
	// without says what it cannot do here, and why; "" if there is nothing.
	without string
	// start lays out and names what is started.
	start func(s *site) (server, error)
}

// Of batches and the times that they wait: 1/50 and 1/10 of the objective are 1 ms and
// 5 ms for 50 ms, as most of the peers' documents have them.
const (
	largeBatch, smallBatch = 32, 8
	shortDelay, longDelay  = 50, 10
)

// batches is the grid of peers whose batches wait for a fixed time.
func batches(slo time.Duration, workers, others int) []Setting {
	return []Setting{
		setting(largeBatch, slo/shortDelay, workers), setting(largeBatch, slo/longDelay, workers),
		setting(smallBatch, slo/shortDelay, workers), setting(1, 0, workers), setting(largeBatch, slo/shortDelay, others),
	}
}

// all are the peers, in the order in which they are measured.
var all = []Peer{
	{
		Name: "mlserver", engine: "mlserver", delay: "max_batch_time", workers: "parallel_workers", restarts: true,
		grid:    func(slo time.Duration) []Setting { return batches(slo, 0, 1) },
		ways:    map[Payload][]Way{Binary: {grpcWay}, JSON: {v2JSONWay}},
		without: "its REST takes no binary tensors, and PyPI has no ONNX runtime of it: binary is gRPC with raw contents, the runtime is a custom one",
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
		ways:    map[Payload][]Way{Binary: {rawWay}, JSON: {namedWay}},
		without: "it has no protocol for tensors: binary is the inputs' bytes, JSON an array for each input, both over HTTP; its gRPC carries only messages of the user's own and goes through the same proxy, so it is not tried; one core has one replica",
		start:   startRay,
	},
	{
		Name: "triton", engine: "triton", delay: "max_queue_delay_microseconds", workers: "instances",
		grid:    func(slo time.Duration) []Setting { return batches(slo, 1, 2) },
		ways:    map[Payload][]Way{Binary: {grpcWay, v2BinaryWay}, JSON: {v2JSONWay}},
		without: "the wheel on PyPI (nvidia-pytriton) has no onnxruntime backend, only Python's: the model runs in it, with the same ONNX Runtime",
		start:   startTriton,
	},
}

// Names are the peers', in the order in which they are measured.
func Names() (names []string) {
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}

// choose are the peers with these names, all if there are none.
func choose(names []string) ([]Peer, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Peer
	for _, name := range names {
		i := slices.IndexFunc(all, func(p Peer) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--peers: there is no peer %q; they are %s", name, strings.Join(Names(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// point is a setting and how requests come to it.
type point struct {
	Setting
	way Way
}

// groups are the settings of a grid that one server can have, in their order.
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

// describeGrid lists the settings for an objective, the one to begin with first.
func (p Peer) describeGrid(slo time.Duration) string {
	var texts []string
	for _, x := range p.grid(slo) {
		texts = append(texts, fmt.Sprintf("%d/%v/%d", x.MaxBatch, x.Delay, x.Workers))
	}
	return fmt.Sprintf("max batch/%s/%s, for an SLO of %v: %s", p.delay, p.workers, slo, strings.Join(texts, ", "))
}

// describe says a point in the peer's own words.
func (p Peer) describe(x point) string {
	return fmt.Sprintf("%s, max batch %d, %s %v, %s %d", x.way.Name, x.MaxBatch, p.delay, x.Delay, p.workers, x.Workers)
}
