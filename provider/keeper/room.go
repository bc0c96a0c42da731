package keeper

import (
	"fmt"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// CheckRequests refuses a deployment whose instances no node could hold, even an empty one. Nodes
// must be all that there will ever be: a cluster may grow. The error is an *annotation.Error.
func CheckRequests(d types.FunctionDeployment, requests cluster.Resources, nodes []cluster.Node) error {
	var most cluster.Resources
	for _, n := range nodes {
		most.CPU, most.Memory = max(most.CPU, n.Total.CPU), max(most.Memory, n.Total.Memory)
	}
	switch {
	case d.Requests == nil || len(nodes) == 0:
		return nil
	case requests.CPU > most.CPU:
		return &annotation.Error{Key: "requests.cpu", Value: d.Requests.CPU, Why: tooMuch(most.CPU, "m")}
	case requests.Memory > most.Memory:
		return &annotation.Error{Key: "requests.memory", Value: d.Requests.Memory, Why: tooMuch(int(most.Memory>>20), "Mi")}
	}
	return nil
}

// tooMuch says that functions may use less of the machine.
func tooMuch(most int, unit string) string {
	return fmt.Sprintf("each instance needs that much, and functions may use %d%s of the machine; request less", most, unit)
}
