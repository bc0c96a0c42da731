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

// Overrides take the place of what a file says.
type Overrides struct {
	// Trace is a file or a built-in trace, whose columns become the cases of a
	// scenario that has traces; "" leaves them.
	Trace string
	// Cluster is a file or a built-in cluster; "" leaves it.
	Cluster string
	// Duration is how long is simulated, as far as traces go; 0 leaves it.
	Duration time.Duration
	// Seed is of all that is random; nil leaves it.
	Seed *uint64
}

// Info is a built-in scenario's name and the sentence on it.
type Info struct{ Name, About string }

// Builtin lists the built-in scenarios.
func Builtin() []Info {
	var all []Info
	for _, name := range fleet.ScenarioNames() {
		text, err := fleet.ScenarioText(name)
		if err != nil {
			continue // a test reads all
		}
		d, err := fleet.ParseDocument(name, text)
		if err != nil {
			continue
		}
		all = append(all, Info{name, d.Root().String("about")})
	}
	return all
}

// Load reads a built-in scenario by its name, or a file. Files that a file names in turn
// are looked for from its own folder, those that overrides name from here.
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

// Parse reads a scenario's text; name is what errors call it, dir where the files
// that it names are looked for.
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
