package main_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sequential returns the pattern of import paths that the Makefile tests without the
// race detector.
func sequential(t *testing.T) *regexp.Regexp {
	t.Helper()
	_, rest, found := strings.Cut(document(t, "Makefile"), "\nSEQUENTIAL := ")
	pattern, _, _ := strings.Cut(rest, "\n")
	if !found || pattern == "" {
		t.Fatal("the Makefile has no SEQUENTIAL, the pattern of packages tested without the race detector")
	}
	return regexp.MustCompile(strings.ReplaceAll(pattern, "$$", "$"))
}

// goroutines finds code that may run concurrently with what follows: go statements,
// and the methods of wait groups and tests that start goroutines.
func goroutines(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, s.at(n))
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Go", "Parallel", "RunParallel", "AfterFunc"}, f.Sel.Name) {
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
