package gillis

import (
	"fmt"

	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
	"github.com/faas-infer/faas-infer/papers/gillis/partition/graph"
)

// clustered are the models whose least objective is looked for on a small cluster.
var clustered = []string{"vgg-16", "resnet-50", "wrn-50-4"}

const (
	// nodes and cores are the cluster's.
	nodes, cores = 8, 2
	// call is the time of an empty call there, one way, in ms.
	call = 0.1
)

// onCluster is a platform of instances of a core each on the nodes, with the computation that
// the paper measured on KNIX. The master's link carries one tensor after another, so the time
// on the wire counts as part of encoding, on the way there and on the way back.
func (e *evaluation) onCluster(gbit float64) *partition.Platform {
	p, _ := partition.Named("knix")
	const mib = 1 << 20
	wire := mib * 8 / (gbit * 1e6) // ms a MiB
	p.MaxParts, p.Codec = nodes*cores, e.codec
	p.Codec.Encode.A += wire
	p.Transfer = delay.Transfer{UnitBytes: mib}
	p.Transfer.Send.Loc, p.Transfer.Return.Loc = call, call
	return p
}

// leastSLO prints the least objective that a model can meet on the cluster: on one core, on
// the threads of a node if they were all of use, and cut over instances.
func (e *evaluation) leastSLO(name string) error {
	m, err := e.model(name)
	if err != nil {
		return err
	}
	for i, gbit := range []float64{1, 10} {
		p := e.onCluster(gbit)
		options := graph.Ours()
		if options.Time, err = graph.PublishedTime(p); err != nil {
			return err
		}
		g, err := graph.New(m, options)
		if err != nil {
			return err
		}
		space, err := partition.NewSpace(g, p, partition.Limits{})
		if err != nil {
			return err
		}
		plan, err := space.Fastest(0)
		if err != nil {
			return err
		}
		whole := 0.0
		for l := range g.Layers() {
			whole += g.Options(l, l+1)[0].Parts[0].Compute
		}
		if i == 0 {
			e.report.Add(fmt.Sprintf("least_slo_ms.%s.core", name), whole, "ms", "one core, whatever its memory")
			e.report.Add(fmt.Sprintf("least_slo_ms.%s.threads", name), whole/cores, "ms", "the two cores of a node, at best")
		}
		members := 1
		for _, r := range plan.Rounds {
			members = max(members, len(r.Option.Parts))
		}
		e.report.Add(fmt.Sprintf("least_slo_ms.%s.partition.%ggbit", name, gbit), plan.Time.Mean, "ms",
			fmt.Sprintf("at most %d parts at once in %d rounds, on %d nodes of %d cores", members, len(plan.Rounds), nodes, cores))
	}
	return nil
}
