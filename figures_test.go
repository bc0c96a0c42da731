package main_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// room is a package with handwritten code, tests aside.
type room struct {
	files, lines int
	importers    map[string]bool
}

// surveyed returns the project's packages by folder.
func surveyed(t *testing.T) map[string]*room {
	rooms := map[string]*room{}
	at := func(folder string) *room {
		if rooms[folder] == nil {
			rooms[folder] = &room{importers: map[string]bool{}}
		}
		return rooms[folder]
	}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		r := at(s.folder)
		r.files, r.lines = r.files+1, r.lines+s.lines
		for _, p := range s.imports() {
			if to, ours := strings.CutPrefix(p, module+"/"); ours {
				at(to).importers[s.folder] = true
			}
		}
	}
	maps.DeleteFunc(rooms, func(_ string, r *room) bool { return r.files == 0 }) // Generated code.
	return rooms
}

// functions returns the lengths of the project's functions in lines, tests aside, and
// the number of methods of each type, by "folder.Type".
func functions(t *testing.T) (lengths []int, methods map[string]int) {
	methods = map[string]int{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lengths = append(lengths, length(s, f))
			if f.Recv != nil {
				methods[s.folder+"."+receiver(f)]++
			}
		}
	}
	slices.Sort(lengths)
	return lengths, methods
}

func length(s source, f *ast.FuncDecl) int {
	return s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
}

// receiver is the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// statements counts the statements (go/ast's nodes of type Stmt) of the product, its tests,
// generated code, the lab with its tests, and the end-to-end tests.
func statements(t *testing.T) map[string]int {
	counts := map[string]int{}
	for _, s := range everySource(t) {
		kind := "product"
		switch {
		case s.generated:
			kind = "generated"
		case within(s.folder, "lab") && s.test():
			kind = "tests of the lab"
		case within(s.folder, "lab"):
			kind = "lab"
		case within(s.folder, "e2e"):
			kind = "e2e"
		case s.test():
			kind = "tests"
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if _, ok := n.(ast.Stmt); ok {
				counts[kind]++
			}
			return true
		})
	}
	return counts
}

// The test prints the figures that scripts/house.sh shows.
func TestFigures(t *testing.T) {
	rooms := surveyed(t)
	var oneFile, oneImporter, inProvider, ofProduct, lines int
	byRoom := map[string]int{}
	var sizes []int
	for folder, r := range rooms {
		if r.files == 1 {
			oneFile++
		}
		if len(r.importers) == 1 {
			oneImporter++
		}
		if within(folder, "provider") {
			inProvider++
		}
		if !within(folder, "lab") && !within(folder, "e2e") {
			ofProduct++
		}
		byRoom[top(folder)] += r.lines
		lines += r.lines
		sizes = append(sizes, r.lines)
	}
	slices.Sort(sizes)
	lengths, methods := functions(t)
	largest := slices.MaxFunc(slices.Collect(maps.Keys(methods)), func(a, b string) int {
		return cmp.Or(cmp.Compare(methods[a], methods[b]), cmp.Compare(a, b))
	})
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%-44s %v\n", name, value) }
	line("packages", len(rooms))
	line("packages of the product", ofProduct)
	line("packages with one file", oneFile)
	line("packages with one importer", oneImporter)
	line("packages in provider", inProvider)
	line("lines of the median package", sizes[len(sizes)/2])
	line("methods of the largest type", fmt.Sprintf("%d (%s)", methods[largest], largest))
	line("lines of the median function", lengths[len(lengths)/2])
	line("lines of the 90th percentile of functions", lengths[len(lengths)*9/10])
	line("lines of the longest function", lengths[len(lengths)-1])
	line("hand-written lines, tests aside", lines)
	for _, name := range slices.Sorted(maps.Keys(byRoom)) {
		line("  "+cmp.Or(strings.TrimPrefix(name, "."), "(root)"), byRoom[name])
	}
	counts := statements(t)
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		line("statements: "+kind, counts[kind])
	}
	line("words of ARCHITECTURE.md", len(strings.Fields(string(text))))
	t.Log("\n" + b.String())
}
