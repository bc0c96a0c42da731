package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/faas-infer/faas-infer/"

// files parses the Go files below a folder, tests excepted, by their names.
func files(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	all := map[string]*ast.File{}
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		all[name], err = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// methods lists the methods of an interface of a folder.
func methods(t *testing.T, folder, name string) (out []string) {
	t.Helper()
	for _, f := range files(t, folder) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					for _, n := range m.Names {
						out = append(out, n.Name)
					}
				}
			}
			return false
		})
	}
	return out
}

// receivers lists the methods that types declare, by file and type.
func receivers(all map[string]*ast.File) map[string][]string {
	out := map[string][]string{}
	for name, f := range all {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if fn.Recv == nil {
				out[filepath.Dir(name)+": functions"] = append(out[filepath.Dir(name)+": functions"], fn.Name.Name)
				continue
			}
			on := fn.Recv.List[0].Type
			if star, ok := on.(*ast.StarExpr); ok {
				on = star.X
			}
			if id, ok := on.(*ast.Ident); ok {
				key := filepath.Dir(name) + ": " + id.Name
				out[key] = append(out[key], fn.Name.Name)
			}
		}
	}
	return out
}

// calls returns which of a package's functions, methods or types the files use: selectors
// on the package's name, and the last name of all other selectors.
func calls(all map[string]*ast.File) (of map[string]bool) {
	of = map[string]bool{}
	for _, f := range all {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				of[s.Sel.Name] = true
				if x, ok := s.X.(*ast.Ident); ok {
					of[x.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	return of
}

// The simulator has no policies. None of its types has the methods of an engine, of a
// batching policy or of a cold-start policy. None of its functions has the name of one that
// decides.
func TestSimHasNoPolicyOfItsOwn(t *testing.T) {
	declared := map[string][]string{}
	for _, folder := range []string{".", "../arrivals", "../figure", "../fleet", "../scenario", "../testbed"} {
		maps.Copy(declared, receivers(files(t, folder)))
	}
	for _, policy := range []struct{ folder, name string }{{"../../batching", "Policy"}, {"../../coldstart", "Policy"}, {"../../scaling/systems", "Scaler"}} {
		wanted := methods(t, policy.folder, policy.name)
		if len(wanted) == 0 {
			t.Fatalf("%s has no interface %s", policy.folder, policy.name)
		}
		for on, has := range declared {
			if !slices.ContainsFunc(wanted, func(m string) bool { return !slices.Contains(has, m) }) {
				t.Errorf("%s has all methods of %s.%s: %v", on, policy.folder, policy.name, wanted)
			}
		}
	}
	decisions := []string{"Scale", "Schedule", "Actions", "Windows", "Decide", "Bounds", "Candidates", "Travel"}
	for on, has := range declared {
		for _, m := range has {
			if slices.Contains(decisions, m) {
				t.Errorf("%s declares %s, which is for a policy to say", on, m)
			}
		}
	}
}

// The simulator and the provider call the same code. The simulator uses everything that the
// provider's drivers use of the packages that decide.
func TestSimDrivesWhatProductionDrives(t *testing.T) {
	production := map[string]*ast.File{}
	for _, folder := range []string{"../../provider/control", "../../provider/dispatch"} {
		for name, f := range files(t, folder) {
			production[name] = f
		}
	}
	simulated := map[string]*ast.File{}
	for name, f := range files(t, ".") {
		if dir := filepath.Dir(name); dir == "." {
			simulated[name] = f
		}
	}
	theirs, ours := calls(production), calls(simulated)
	// Each is a decision: by the package's name, or by a method's.
	for _, decision := range []string{
		"Look", "Scale", "systems.CarryOut", "systems.Deal", "Range", "Largest", "batching.Travel", "batching.Up", "batching.Down", "Actions", "Next", "Waiting",
	} {
		if !theirs[decision] {
			t.Errorf("production does not use %s any more: neither should this test", decision)
		}
		if !ours[decision] {
			t.Errorf("production uses %s, the simulator does not", decision)
		}
	}
	for _, needed := range []string{"scaling/systems", "scaling", "batching", "coldstart", "cluster"} {
		if !slices.ContainsFunc(imports(simulated), func(p string) bool { return p == module+needed }) {
			t.Errorf("the simulator does not import %s", needed)
		}
	}
	for _, p := range imports(files(t, ".")) {
		if strings.HasPrefix(p, module+"provider") {
			t.Errorf("the simulator imports %s, a driver", p)
		}
	}
}

func imports(all map[string]*ast.File) (out []string) {
	for _, f := range all {
		for _, spec := range f.Imports {
			out = append(out, strings.Trim(spec.Path.Value, `"`))
		}
	}
	return out
}
