package debian

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Python lists the packages of images for functions in Python: the interpreter, and
// the module with which the provider makes virtual environments.
var Python = []string{"python3", "python3-venv"}

// installOnly are packages that only the installation scripts of others need. Images
// run no such scripts.
var installOnly = []string{"debconf", "dpkg", "install-info", "mailcap", "mime-support", "perl", "perl-base", "readline-common", "tar"}

// dependency matches a line of apt-cache depends. A | marks a package that the next
// line has an alternative to.
var dependency = regexp.MustCompile(`^\s+(\|?)(?:PreDepends|Depends): ([^<\s]+)`)

// closure lists packages and all their dependencies, except those in [Packages].
func (s *Source) closure(ctx context.Context, packages []string) ([]string, error) {
	var all []string
	for next := packages; len(next) > 0; {
		out, err := run(ctx, "", "apt-cache", s.arguments(append([]string{"depends", "--important"}, next...)...)...)
		if err != nil {
			return nil, fmt.Errorf("list the dependencies of packages: %w; run `apt-get update`", err)
		}
		all = append(all, next...)
		next = nil
		for _, name := range dependencies(string(out)) {
			if !slices.Contains(all, name) && !slices.Contains(Packages, name) && !slices.Contains(installOnly, name) {
				next = append(next, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// dependencies reads the output of apt-cache depends. It takes the first of several
// alternatives.
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
		skip = m[1] != "" // The next line is the alternative.
	}
	slices.Sort(names)
	return slices.Compact(names)
}
