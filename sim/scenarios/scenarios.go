// Package scenarios holds the scenarios and clusters that the program has built
// in, as the very files that it reads from elsewhere, to be read and copied.
package scenarios

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.yaml clusters/*.yaml
var files embed.FS

// The order in which scenarios are listed: those that repeat the paper's figures,
// and then examples to copy.
var order = []string{"testbed-osvt", "testbed-qa", "testbed-osvt-400ms", "traces", "scale", "coldstart", "batch-fig14", "osvt-ramp", "poisson", "mmpp", "one-machine"}

// Names lists the scenarios.
func Names() []string { return slices.Clone(order) }

// Clusters lists the clusters.
func Clusters() []string { return []string{"testbed", "large"} }

// Scenario is a scenario's file; an error says which there are.
func Scenario(name string) ([]byte, error) {
	return read(name, ".", "scenario", Names())
}

// Cluster is a cluster's file; an error says which there are.
func Cluster(name string) ([]byte, error) {
	return read(name, "clusters", "cluster", Clusters())
}

func read(name, folder, what string, names []string) ([]byte, error) {
	if !slices.Contains(names, name) {
		return nil, fmt.Errorf("there is no %s %q: it is a file, or one of %s", what, name, strings.Join(names, ", "))
	}
	sub, err := fs.Sub(files, folder)
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(sub, name+".yaml")
}
