package main_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sequential is what the Makefile tests without the race detector, as a pattern of
// import paths.
func sequential(t *testing.T) *regexp.Regexp {
	t.Helper()
	_, rest, found := strings.Cut(document(t, "Makefile"), "\nSEQUENTIAL := ")
	pattern, _, _ := strings.Cut(rest, "\n")
	if !found || pattern == "" {
		t.Fatal("the Makefile says no longer what is tested without the race detector")
	}
	return regexp.MustCompile(strings.ReplaceAll(pattern, "$$", "$"))
}

// goroutines finds what may run beside what comes after it: go statements, and the
// methods of wait groups and tests that stand for them.
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

// Without the race detector is tested only what has nothing to race: packages that,
// their tests included, start no goroutine and import none of ours that does.
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
		t.Errorf("no package is like %s", pattern)
	}
}

// reached are a folder and all that it imports, directly or not.
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
