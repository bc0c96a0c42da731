package fleet

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.yaml clusters/*.yaml
var files embed.FS

// order lists the scenarios: first those that repeat the paper's figures, then examples to
// copy.
var order = []string{"testbed-osvt", "testbed-qa", "testbed-osvt-400ms", "traces", "scale", "coldstart", "batch-fig14",
	"infaas-table3", "infaas-fig6", "infaas-production", "infaas-sharing", "accuracy-scaling", "symphony",
	"osvt-ramp", "poisson", "mmpp", "crowded", "one-machine", "sets"}

// ScenarioNames lists the scenarios.
func ScenarioNames() []string { return slices.Clone(order) }

// ClusterNames lists the clusters.
func ClusterNames() []string { return []string{"testbed", "large"} }

// ScenarioText returns a scenario's file. If there is none, the error lists the scenarios.
func ScenarioText(name string) ([]byte, error) {
	return read(name, ".", "scenario", ScenarioNames())
}

// clusterText returns a cluster's file. If there is none, the error lists the clusters.
func clusterText(name string) ([]byte, error) {
	return read(name, "clusters", "cluster", ClusterNames())
}

func read(name, folder, what string, names []string) ([]byte, error) {
	if !slices.Contains(names, name) {
		return nil, fmt.Errorf("there is no %s %q: name a file, or one of %s", what, name, strings.Join(names, ", "))
	}
	sub, err := fs.Sub(files, folder)
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(sub, name+".yaml")
}
