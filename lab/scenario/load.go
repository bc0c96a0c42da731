package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/lab/fleet"
)

// Overrides replace values of a file. Zero values replace nothing.
type Overrides struct {
	// Trace is a file or a built-in trace. Its columns become the cases of a scenario
	// that has traces.
	Trace string
	// Cluster is a file or a built-in cluster.
	Cluster string
	// Variants is a file or a built-in table of variants.
	Variants string
	// Duration is how long to simulate. A shorter trace still ends the simulation.
	Duration time.Duration
	// Fork is the time that OpenFaaS+'s watchdog takes to start a process for a request.
	Fork time.Duration
	// Seed is the seed of the random numbers.
	Seed *uint64
}

// Info is a built-in scenario's name and a sentence about it.
type Info struct{ Name, About string }

// Builtin lists the built-in scenarios.
func Builtin() []Info {
	var all []Info
	for _, name := range fleet.ScenarioNames() {
		text, err := fleet.ScenarioText(name)
		if err != nil {
			continue // A test reads all built-in scenarios.
		}
		d, err := fleet.ParseDocument(name, text)
		if err != nil {
			continue
		}
		all = append(all, Info{name, d.Root().String("about")})
	}
	return all
}

// Load reads a built-in scenario by its name, or a file. Paths in a file are relative to
// its folder; paths in overrides are relative to the working directory.
func Load(nameOrFile string, o Overrides) (*Scenario, error) {
	text, err := fleet.ScenarioText(nameOrFile)
	if err == nil {
		return Parse(nameOrFile, text, "", o)
	}
	read, failed := os.ReadFile(nameOrFile)
	switch {
	case failed == nil:
		return Parse(nameOrFile, read, filepath.Dir(nameOrFile), o)
	case errors.Is(failed, fs.ErrNotExist):
		return nil, err
	default:
		return nil, fmt.Errorf("scenario: %w", failed)
	}
}

// Parse reads a scenario's text. Errors begin with name. Paths in the text are relative to
// dir.
func Parse(name string, text []byte, dir string, o Overrides) (*Scenario, error) {
	d, err := fleet.ParseDocument(name, text)
	if err != nil {
		return nil, err
	}
	r := &reader{dir: dir, overrides: o}
	s := r.scenario(d.Root())
	if err := d.Err(); err != nil {
		return nil, err
	}
	s.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	for _, c := range s.cases {
		c.Name = s.Name
	}
	return s, nil
}
