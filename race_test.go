package main_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fromMakefile returns the value of one of the Makefile's variables.
func fromMakefile(t *testing.T, variable string) string {
	t.Helper()
	_, rest, found := strings.Cut(document(t, "Makefile"), "\n"+variable+" := ")
	value, _, _ := strings.Cut(rest, "\n")
	if !found || value == "" {
		t.Fatalf("the Makefile has no %s, which says what is tested without the race detector", variable)
	}
	return strings.ReplaceAll(value, "$$", "$")
}

// sequential returns the pattern of import paths that the Makefile tests without the
// race detector.
func sequential(t *testing.T) *regexp.Regexp {
	t.Helper()
	return regexp.MustCompile(fromMakefile(t, "SEQUENTIAL"))
}

// goroutines finds code that may run concurrently with what follows: go statements,
// and the methods of wait groups and tests that start goroutines.
func goroutines(s source) []string {
	return starting(s, s.file, "Go", "Parallel", "RunParallel", "AfterFunc")
}

// starting finds go statements and calls of methods with these names in a part of a source.
func starting(s source, part ast.Node, methods ...string) []string {
	var found []string
	ast.Inspect(part, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, s.at(n))
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(methods, f.Sel.Name) {
				found = append(found, s.at(n))
			}
		}
		return true
	})
	return found
}

// Only packages with nothing to race are tested without the race detector. They, their
// tests included, start no goroutine and import none of the project's packages that
// does.
func TestSequentialPackagesStartNoGoroutine(t *testing.T) {
	starts, imports := map[string][]string{}, map[string][]string{}
	of := map[string][]source{}
	for _, s := range sources(t) {
		of[s.folder] = append(of[s.folder], s)
		if s.test() {
			continue
		}
		starts[s.folder] = append(starts[s.folder], goroutines(s)...)
		for _, p := range s.imports() {
			if to, ours := strings.CutPrefix(p, module+"/"); ours {
				imports[s.folder] = append(imports[s.folder], to)
			}
		}
	}
	pattern, tested := sequential(t), 0
	for folder, files := range of {
		if !pattern.MatchString(module + "/" + folder) {
			continue
		}
		tested++
		for _, s := range files {
			if found := goroutines(s); s.test() && len(found) > 0 {
				t.Errorf("%s is tested without the race detector and starts goroutines in its tests: %v", folder, found)
			}
		}
		for _, below := range reached(imports, folder, map[string]bool{}) {
			if len(starts[below]) > 0 {
				t.Errorf("%s is tested without the race detector and %s starts goroutines: %v", folder, below, starts[below])
			}
		}
	}
	if tested == 0 {
		t.Errorf("no package matches %s", pattern)
	}
}

// reached returns a folder and everything that it imports, directly or not.
func reached(imports map[string][]string, folder string, seen map[string]bool) []string {
	if seen[folder] {
		return nil
	}
	seen[folder] = true
	all := []string{folder}
	for _, to := range imports[folder] {
		all = append(all, reached(imports, to, seen)...)
	}
	return all
}

// The long tests that the Makefile runs without the race detector are run there, each in its
// package, and start no goroutine. They may run beside each other: they share nothing.
func TestSequentialTestsAreRun(t *testing.T) {
	names, folders := regexp.MustCompile(fromMakefile(t, "SEQUENTIAL_TESTS")), strings.Fields(fromMakefile(t, "SEQUENTIAL_IN"))
	unraced, used := sequential(t), map[string]bool{}
	for _, s := range sources(t) {
		if !s.test() || unraced.MatchString(module+"/"+s.folder) {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !names.MatchString(f.Name.Name) {
				continue
			}
			used[f.Name.Name], used["./"+s.folder] = true, true
			if !slices.Contains(folders, "./"+s.folder) {
				t.Errorf("%s is in ./%s, and runs nowhere: add that to the Makefile's SEQUENTIAL_IN", f.Name.Name, s.folder)
			}
			if found := starting(s, f, "Go", "RunParallel", "AfterFunc"); len(found) > 0 {
				t.Errorf("%s is tested without the race detector and starts goroutines: %v", f.Name.Name, found)
			}
		}
	}
	for _, name := range append(strings.Split(strings.Trim(names.String(), "^()$"), "|"), folders...) {
		if !used[name] {
			t.Errorf("the Makefile has %s among the long sequential tests, and there is none", name)
		}
	}
}
