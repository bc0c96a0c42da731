package debian

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Python is what images have in which a function's Python runs: the interpreter, and
// what makes virtual environments, which the provider does.
var Python = []string{"python3", "python3-venv"}

// apart are packages that others depend on for their installation's scripts only,
// which nobody runs here.
var apart = []string{"debconf", "dpkg", "install-info", "mailcap", "mime-support", "perl", "perl-base", "readline-common", "tar"}

// dependency is a line of apt-cache depends: what is needed, of alternatives the first.
var dependency = regexp.MustCompile(`^\s+(\|?)(?:PreDepends|Depends): ([^<\s]+)`)

// Closure lists packages with all that they depend on, less those of [Packages].
func Closure(ctx context.Context, packages []string) ([]string, error) {
	var all []string
	for next := packages; len(next) > 0; {
		out, err := run(ctx, "", "apt-cache", append([]string{"depends", "--important"}, next...)...)
		if err != nil {
			return nil, fmt.Errorf("find what packages depend on: %w; `apt-get update` makes apt know what there is", err)
		}
		all = append(all, next...)
		next = nil
		for _, name := range dependencies(string(out)) {
			if !slices.Contains(all, name) && !slices.Contains(Packages, name) && !slices.Contains(apart, name) {
				next = append(next, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// dependencies reads what apt-cache depends prints.
func dependencies(text string) (names []string) {
	skip := false
	for line := range strings.Lines(text) {
		m := dependency.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if !skip {
			names = append(names, m[2])
		}
		skip = m[1] != "" // The next line is the other one of two.
	}
	slices.Sort(names)
	return slices.Compact(names)
}
