package main_test

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxFiles is the maximum number of product files that may name an entry of a
// registry.
const maxFiles = 3

// registries are the lists of CONTRIBUTING's "Where do I add …": the variable, and its
// file.
var registries = []struct{ adds, variable, file string }{
	{"a scheduler", "schedulers", "scaling/systems/schedulers.go"},
	{"a batching policy", "policies", "batching/new.go"},
	{"a cold-start policy", "makers", "coldstart/new.go"},
	{"an annotation", "knownKeys", "provider/annotation/annotation.go"},
	{"an engine", "all", "instance/engines/engines.go"},
}

// Adding something touches its own file, a row in a list, and at most one more file.
func TestAddingTouchesFewFiles(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	product := slices.DeleteFunc(slices.Clone(sources(t)), func(s source) bool {
		return s.test() || within(s.folder, "lab") || within(s.folder, "e2e")
	})
	for _, r := range registries {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(r.adds) + ` \|.*$`).FindString(string(text))
		if !strings.Contains(row, "`"+r.variable+"` in `"+r.file+"`") {
			t.Errorf("CONTRIBUTING.md does not say that %s has its row in %s in %s: %q", r.adds, r.variable, r.file, row)
		}
		at := slices.IndexFunc(product, func(s source) bool { return s.name == r.file })
		if at < 0 {
			t.Errorf("there is no %s", r.file)
			continue
		}
		entries := entriesOf(product[at], r.variable)
		if len(entries) == 0 {
			t.Errorf("%s has no list %s", r.file, r.variable)
		}
		for _, e := range entries {
			if in := naming(product, e); len(in) > maxFiles {
				t.Errorf("%s %s.%s is named in %d files, more than %d: %s", r.adds, path.Base(e.folder), e.name, len(in), maxFiles, strings.Join(in, ", "))
			}
		}
	}
}

// entry is a name of one of the project's packages that an element of a list uses.
type entry struct{ folder, name string }

// entriesOf returns the exported functions and constants that the list of a variable
// uses.
func entriesOf(s source, variable string) (all []entry) {
	imported := map[string]string{}
	for _, p := range s.imports() {
		if folder, ours := strings.CutPrefix(p, module+"/"); ours {
			imported[path.Base(folder)] = folder
		}
	}
	types := map[*ast.Ident]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != variable {
			return true
		}
		list, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, element := range list.Elts {
			ast.Inspect(element, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncType: // What a function takes and returns is no entry.
					return false
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok {
						types[key] = true
					}
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok {
						if folder := imported[x.Name]; folder != "" {
							all = append(all, entry{folder, n.Sel.Name})
						}
					}
					return false
				case *ast.Ident:
					if n.IsExported() && !types[n] && !strings.HasSuffix(n.Name, "Name") {
						all = append(all, entry{s.folder, n.Name})
					}
				}
				return true
			})
		}
		return false
	})
	return all
}

// naming returns the files that name an entry. Those of its package use its name;
// others put the package before it.
func naming(all []source, e entry) (in []string) {
	for _, s := range all {
		own := s.folder == e.folder
		if !own && !slices.Contains(s.imports(), module+"/"+e.folder) {
			continue
		}
		found := false
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && !own && x.Name == path.Base(e.folder) && n.Sel.Name == e.name {
					found = true
				}
			case *ast.Ident:
				found = found || own && n.Name == e.name && token.IsExported(n.Name)
			}
			return !found
		})
		if found {
			in = append(in, s.name)
		}
	}
	return in
}
