package batch

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Shares groups configs by their resources, as BATCH's optimiser needs them. A share has all
// batch sizes of its configs, table's times of the config with the largest one, and the price
// of its resources for one batch's time. configs[i] is that config of shares[i].
func Shares(all []cluster.Config, table func(cluster.Config) []time.Duration, price systems.Pricing) (shares []Share, configs []cluster.Config) {
	for _, c := range all {
		i := slices.IndexFunc(configs, func(l cluster.Config) bool {
			return l.Resources == c.Resources && l.Streams() == c.Streams() && l.Members() == c.Members() && l.Apart == c.Apart
		})
		if i < 0 {
			costs := price.Price(c.Resources)
			i, configs = len(configs), append(configs, c)
			shares = append(shares, Share{Cost: costs.PerSecond / float64(c.Streams()), Call: costs.PerCall})
		}
		if c.Batch >= configs[i].Batch {
			configs[i] = c
		}
		shares[i].Batches = append(shares[i].Batches, c.Batch)
	}
	for i := range shares {
		shares[i].Exec = table(configs[i])
	}
	return shares, configs
}

// bound limits each share's instances to the room for it, and drops the shares without room.
// It returns the resources of those. If no share has room, bound limits none: others must
// make room first, and how much is not known.
func bound(shares []Share, configs []cluster.Config, room systems.Room) (none []cluster.Resources) {
	if room == nil {
		return nil
	}
	rooms := make([]int, len(shares))
	for i, c := range configs {
		if rooms[i] = room(c.Resources); rooms[i] < 1 {
			none = append(none, c.Resources)
		}
	}
	if len(none) == len(shares) {
		return none
	}
	for i, n := range rooms {
		if shares[i].Instances = n * configs[i].Streams(); n < 1 {
			shares[i].Batches = nil
		}
	}
	return none
}
