// These tests check rules of the project that a compiler does not: which package may
// import which, what policy packages must not do, how long files and functions may be,
// and that every exported name has a comment.
package main_test

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/faas-infer/faas-infer"

// layers says which of the project's folders a folder may import. An allowed folder
// includes those below it. The longest matching row counts, so a folder has its
// parent's row unless it has its own. Folders under the same top folder may import
// each other unless one of them is in alone.
var layers = map[string][]string{
	".":                  {"*"},
	"lab":                {"*"},
	"e2e":                {"*"},
	"backoff":            {},
	"filelock":           {"backoff"},
	"postmortem":         {},
	"health":             {"backoff"},
	"command":            {"backoff", "filelock", "provider", "scaling", "batching", "coldstart", "variant", "profiler", "cluster", "instance", "model", "gpu", "postmortem", "papers"},
	"command/report":     {},
	"command/load":       {"command/report", "model"},
	"provider":           {"backoff", "scaling", "batching", "coldstart", "variant", "profiler", "cluster", "instance/frame", "instance/duplex", "instance/tensorjson", "model", "health"},
	"provider/children":  {"backoff", "filelock", "postmortem", "gpu", "profiler", "cluster", "instance", "model"},
	"provider/grpc":      {"instance/tensorjson", "model"},
	"provider/bundles":   {"backoff", "filelock", "variant", "cluster", "instance", "model"},
	"scaling":            {"profiler", "cluster"},
	"scaling/systems":    {"scaling", "batching", "coldstart", "cluster"},
	"batching":           {"cluster"},
	"coldstart":          {},
	"papers/asyfunc":     {"backoff", "scaling", "profiler", "cluster", "provider", "instance", "model", "command/instances", "command/plug", "command/profile", "command/report"},
	"papers/batch":       {"batching", "coldstart", "cluster", "scaling", "provider/annotation"},
	"papers/infaas":      {"filelock", "variant", "cluster", "instance", "model", "provider", "command/plug", "command/report", "command/profile"},
	"papers/gillis":      {"backoff", "filelock", "command/instances", "command/plug", "command/profile", "command/report", "provider", "profiler", "cluster", "instance", "model", "health"},
	"variant":            {},
	"profiler":           {"model", "gpu"},
	"profiler/measuring": {"backoff", "filelock", "profiler", "model", "instance", "command/report", "cluster/local/cgroup"},
	"cluster":            {"backoff", "gpu", "postmortem"},
	"cluster/local":      {"backoff", "filelock", "gpu", "postmortem"},
	"cluster/sets":       {"model"},
	"instance":           {"backoff", "filelock", "model", "postmortem", "health"},
	"model":              {"backoff", "filelock"},
	"gpu":                {"backoff", "cluster"},
	"templates":          {},
	"scripts":            {"*"},
	"instance/frame":     {},
	"model/tensor":       {},
	"instance/duplex":    {},
}

// alone lists the packages that import nothing from their own top folder.
var alone = []string{"cluster", "instance/frame", "instance/duplex", "model/tensor", "command/report"}

// pure lists the packages that decide and do not act, with all below them. drivers
// lists the exceptions: the backends and the measuring packages.
var (
	pure    = []string{"batching", "scaling", "coldstart", "variant", "profiler", "cluster", "model/cut", "health", "papers/asyfunc/pairing", "papers/asyfunc/shadow", "papers/batch", "papers/gillis/partition", "papers/infaas/registration", "provider/access", "provider/history", "provider/rollout"}
	drivers = []string{"cluster/local", "cluster/kubernetes", "cluster/sets", "profiler/measuring", "health/probe"}
)

// impure lists imports that no decision needs. An entry that ends in a slash includes
// everything below it.
var impure = []string{
	"net", "net/http", "net/http/", "os", "os/exec", "os/signal", "syscall",
	"golang.org/x/sys/", "k8s.io/",
}

// heavy lists imports that only the second program may have. Each process of the first
// would take 20 MB more, and every instance is one. clusterOnly lists the folders that
// only the second program uses.
var (
	heavy       = []string{"k8s.io/", "github.com/google/go-containerregistry/"}
	clusterOnly = []string{"command/kubernetes", "cluster/kubernetes", "lab", "e2e/kubernetes",
		"provider/objects", "provider/deployments", "model/bundle/image"}
)

// clocks lists the functions of package time that read or wait for a clock.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// maxLines is the maximum length of a file, except for tests and generated code.
const maxLines = 600

// source is one Go file of the project.
type source struct {
	// name is the file's path below the root, and folder its directory.
	name, folder string
	lines        int
	generated    bool
	file         *ast.File
	set          *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s source) at(n ast.Node) string {
	return s.name + ":" + strconv.Itoa(s.set.Position(n.Pos()).Line)
}

// imports lists the import paths.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// sources returns the Go files that people wrote, those of the lab included, parsed once for all
// tests. It leaves out those of other modules below the root.
func sources(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(everySource(t)), func(s source) bool { return s.generated })
}

// everySource is sources with the generated files.
func everySource(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var parsed = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || slices.Contains([]string{"testdata", "vendor", "node_modules"}, d.Name())) {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != "." && name != "lab" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		all = append(all, source{slashed, path.Dir(slashed), lines(text), generated.Match(text), file, set})
		return nil
	})
	return all, err
})

func lines(text []byte) int {
	n := 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		n++
	}
	return n
}

// within reports whether folder is top or below it.
func within(folder, top string) bool { return folder == top || strings.HasPrefix(folder, top+"/") }

func top(folder string) string {
	first, _, _ := strings.Cut(folder, "/")
	return first
}

// row returns what folder may import, and whether the table has a row for it.
func row(folder string) ([]string, bool) {
	for f := folder; ; f = path.Dir(f) {
		if allowed, ok := layers[f]; ok && (f != "." || folder == ".") {
			return allowed, true
		}
		if f == "." {
			return nil, false
		}
	}
}

// mayImport reports whether the layer table allows one import.
func mayImport(from, to string) bool {
	allowed, _ := row(from)
	if from == to || top(from) == top(to) && from != "." && !slices.Contains(alone, from) {
		return true
	}
	return slices.ContainsFunc(allowed, func(a string) bool { return a == "*" || within(to, a) })
}

func TestLayers(t *testing.T) {
	for _, s := range sources(t) {
		if _, ok := row(s.folder); !ok {
			t.Errorf("%s: the layer table has no row for %s", s.name, s.folder)
		}
		if s.test() {
			continue
		}
		for _, p := range s.imports() {
			if to, ours := strings.CutPrefix(p, module+"/"); ours && !mayImport(s.folder, to) {
				t.Errorf("%s: %s must not import %s", s.name, s.folder, to)
			}
		}
	}
}

// papersList is the only file of the core that imports rooms of papers.
const papersList = "command/papers.go"

// paperOf is the room of a paper to which a folder belongs, "" if it belongs to none.
func paperOf(folder string) string {
	if !within(folder, "papers") {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(folder, "papers/"), "/")
	return name
}

// mayKnow reports whether a file may import a folder as far as papers go: the core knows no room but in
// papersList, and a room knows no other.
func mayKnow(file, to string) bool {
	return paperOf(to) == "" || file == papersList || paperOf(path.Dir(file)) == paperOf(to)
}

func TestTheCoreKnowsNoPaper(t *testing.T) {
	rooms, listed := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test() || within(s.folder, "lab") || within(s.folder, "e2e") {
			continue
		}
		rooms[paperOf(s.folder)] = true
		for _, p := range s.imports() {
			to, ours := strings.CutPrefix(p, module+"/")
			if ours && !mayKnow(s.name, to) {
				t.Errorf("%s: %s must not import %s, the room of a paper", s.name, s.folder, to)
			}
			if ours && s.name == papersList {
				listed[paperOf(to)] = true
			}
		}
	}
	for name := range rooms {
		if name != "" && !listed[name] {
			t.Errorf("%s does not list papers/%s", papersList, name)
		}
	}
}

// With the tag nopapers the programs have no room of a paper in them. The list of rooms declares nothing, so that
// they compile without it.
func TestTheProgramWithoutPapers(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "nopapers", ".", "./command/kubernetes/program").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for p := range strings.Lines(string(out)) {
		if strings.HasPrefix(p, module+"/papers/") {
			t.Errorf("it has %s", p)
		}
	}
	for _, s := range sources(t) {
		if s.name == papersList && len(s.file.Decls) != 1 {
			t.Errorf("%s: it only lists rooms", papersList)
		}
	}
}

func isPure(folder string) bool {
	if slices.ContainsFunc(drivers, func(d string) bool { return within(folder, d) }) {
		return false
	}
	return slices.ContainsFunc(pure, func(p string) bool { return within(folder, p) })
}

func TestOnlyTheSecondProgramKnowsKubernetes(t *testing.T) {
	ofCluster := func(folder string) bool {
		return slices.ContainsFunc(clusterOnly, func(f string) bool { return within(folder, f) })
	}
	for _, s := range sources(t) {
		if ofCluster(s.folder) || s.test() {
			continue
		}
		for _, p := range s.imports() {
			to, ours := strings.CutPrefix(p, module+"/")
			if ours && ofCluster(to) || slices.ContainsFunc(heavy, func(h string) bool { return strings.HasPrefix(p, h) }) {
				t.Errorf("%s: %s must not import %s, which is the second program's", s.name, s.folder, p)
			}
		}
	}
}

func TestPolicyPackagesArePure(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || !isPure(s.folder) {
			continue
		}
		for _, p := range s.imports() {
			if slices.ContainsFunc(impure, func(i string) bool { return p == i || strings.HasSuffix(i, "/") && strings.HasPrefix(p, i) }) {
				t.Errorf("%s: a policy package must not import %s", s.name, p)
			}
		}
		for _, found := range actions(s) {
			t.Error(found)
		}
	}
}

// actions finds goroutines and reads of the clock. It also finds those through a
// renamed or a dot import, and those that only take a function's address.
func actions(s source) []string {
	var found []string
	clock := ""
	for _, spec := range s.file.Imports {
		if spec.Path.Value != `"time"` {
			continue
		}
		clock = "time"
		if spec.Name != nil {
			clock = spec.Name.Name
		}
		if clock == "." {
			found = append(found, s.at(spec)+": a policy package must import time by name")
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, s.at(n)+": a policy package must not start goroutines")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && (x.Name == clock && slices.Contains(clocks, n.Sel.Name) || x.Name == "backoff" && n.Sel.Name == "Wait") {
				found = append(found, s.at(n)+": a policy package must take the time as an argument and not use "+x.Name+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestExportedIsDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, found := range undocumented(s) {
			t.Error(found)
		}
	}
}

func undocumented(s source) []string {
	var found []string
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
				found = append(found, s.at(d)+": "+d.Name.Name+" is exported and has no doc comment")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if name, bare := undocumentedSpec(d, spec); bare {
					found = append(found, s.at(spec)+": "+name+" is exported and has no doc comment")
				}
			}
		}
	}
	return found
}

// exportedReceiver reports whether the receiver's type is exported. It is true for
// functions.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			exported = id.IsExported()
			return false
		}
		_, isIndex := n.(*ast.IndexExpr)
		return !isIndex || !exported
	})
	return exported
}

// undocumentedSpec accepts a comment on the declaration, above the name, or beside it.
func undocumentedSpec(d *ast.GenDecl, spec ast.Spec) (string, bool) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		bare := spec.Doc == nil && (d.Doc == nil || len(d.Specs) > 1)
		return spec.Name.Name, bare && spec.Name.IsExported()
	case *ast.ValueSpec:
		for _, n := range spec.Names {
			if n.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
				return n.Name, true
			}
		}
	}
	return "", false
}

// The lab, which simulates and measures, is a module of its own. The root's packages, tests and
// end-to-end tests do without it.
func TestTheRootDoesWithoutTheLab(t *testing.T) {
	for _, s := range sources(t) {
		if within(s.folder, "lab") {
			continue
		}
		for _, p := range s.imports() {
			if to, ours := strings.CutPrefix(p, module+"/"); ours && within(to, "lab") {
				t.Errorf("%s: %s must not import %s", s.name, s.folder, to)
			}
		}
	}
	if strings.Contains(document(t, "go.mod"), module+"/lab") {
		t.Error("go.mod must not require the lab")
	}
	if !strings.Contains(document(t, "lab/go.mod"), "module "+module+"/lab\n") {
		t.Error("lab/go.mod does not make the lab a module")
	}
}

const (
	// maxMethods is the maximum number of methods of a type, and maxFunction that of a
	// function's lines. minPackage is the minimum number of lines of a package with one
	// file and one importer, unless it is a policy.
	maxMethods  = 40
	maxFunction = 80
	minPackage  = 150
)

func TestTypesAndFunctionsCanBeHeld(t *testing.T) {
	_, methods := functions(t)
	for name, n := range methods {
		if n > maxMethods {
			t.Errorf("%s has %d methods, more than %d", name, n, maxMethods)
		}
	}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && length(s, f) > maxFunction {
				t.Errorf("%s: %s has %d lines, more than %d", s.at(f), f.Name.Name, length(s, f), maxFunction)
			}
		}
	}
}

func TestPackagesAreConcepts(t *testing.T) {
	for folder, r := range surveyed(t) {
		if r.files == 1 && r.lines < minPackage && len(r.importers) == 1 && !isPure(folder) && !strings.HasSuffix(folder, "pb") { // Protobufs are generated.
			t.Errorf("%s has one file of %d lines and one importer: it belongs there", folder, r.lines)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() && s.lines > maxLines {
			t.Errorf("%s has %d lines, more than %d", s.name, s.lines, maxLines)
		}
	}
}

// Package command parses flags and connects packages. Work in the background belongs to the room that
// does it.
func TestCommandStartsNoGoroutine(t *testing.T) {
	for _, s := range sources(t) {
		if s.folder != "command" || s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: package command must not start goroutines", s.at(g))
			}
			return true
		})
	}
}

// Each rule must catch its violations.
func TestTheRulesCatch(t *testing.T) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "x.go", `package x
import clock "time"
func Bare() { go func() { clock.Sleep(1) }(); _ = clock.Now; backoff.Wait() }
// Fine is documented.
func Fine() {}
type T struct{}
func (t *T) Method() {}
func (t hidden) Method() {}
const ( A = 1 // A is beside.
 B = 2 )
`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	s := source{"x.go", "batching", 10, false, file, set}
	if got := actions(s); len(got) != 4 {
		t.Errorf("actions: %q, want four", got)
	}
	if got := undocumented(s); len(got) != 4 {
		t.Errorf("undocumented: %q, want Bare, T, Method and B", got)
	}
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"scaling", "profiler", true}, {"scaling", "batching", false}, {"coldstart", "command/report", false}, {"command", "lab", false},
		{"provider/dispatch", "instance/frame", true}, {"provider/dispatch", "provider/annotation", true},
		{"provider", "command", false}, {"cluster", "cluster/local", false}, {"cluster/local", "cluster", true},
		{"model/zoo", "model", true}, {"command/load", "model/tensor", true}, {"model", "instance", false},
		{"instance/onnxruntime", "instance", true}, {"instance/frame", "instance", false}, {".", "command", true}, {"provider", "instance", false},
	} {
		if got := mayImport(c.from, c.to); got != c.want {
			t.Errorf("%s imports %s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	for file, want := range map[string]bool{
		"provider/x.go": false, "command/x.go": false, papersList: true, "papers/batch/x.go": true, "papers/batch/latency/x.go": true, "papers/other/x.go": false,
	} {
		if got := mayKnow(file, "papers/batch/latency"); got != want {
			t.Errorf("%s imports papers/batch/latency: %v, want %v", file, got, want)
		}
	}
}

// Packages whose tests start a Kubernetes cluster belong to `make test-kubernetes`,
// which builds it first: on a new machine that takes longer than a package's time
// limit.
func TestMakefileKnowsWhatNeedsKubernetes(t *testing.T) {
	const cluster = "e2e/kubernetes/testcluster"
	needs := map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasPrefix(s.folder, "e2e/") {
			continue
		}
		for _, i := range s.file.Imports {
			if strings.HasSuffix(strings.Trim(i.Path.Value, `"`), cluster) {
				needs["./"+s.folder] = true
			}
		}
	}
	for variable, below := range map[string]string{"ON_KUBERNETES": "./", "LAB_ON_KUBERNETES": "./lab/"} {
		for _, folder := range strings.Fields(fromMakefile(t, variable)) {
			folder = below + strings.TrimPrefix(folder, "./")
			if !needs[folder] {
				t.Errorf("the Makefile's %s has %s, which does not start a Kubernetes cluster: remove it", variable, folder)
			}
			delete(needs, folder)
		}
	}
	for folder := range needs {
		t.Errorf("%s starts a Kubernetes cluster: add it to the Makefile's ON_KUBERNETES or LAB_ON_KUBERNETES", folder)
	}
}

// maxFunctions is the maximum number of functions that may change a type's fields.
const maxFunctions = 25

// crowded lists the types that have more functions than maxFunctions, with their maximum in tens. A
// number may only fall.
var crowded = map[string]int{
	"batching.Shared":                  50,
	"cluster/kubernetes.Backend":       60,
	"cluster/kubernetes.entry":         40,
	"cluster/local.Backend":            50,
	"cluster/local.entry":              40,
	"cluster/membership.Set":           40,
	"cluster/sets.Backend":             40,
	"command.ProviderFlags":            40,
	"command/instances.Flags":          30,
	"command/kubernetes.platform":      30,
	"instance/cuda.Engine":             50,
	"instance/cuda.lane":               40,
	"instance/protocol.Model":          50,
	"model.Model":                      40,
	"model/bundle.Manifest":            30,
	"model/shape.call":                 120,
	"model/zoo.network":                70,
	"papers/asyfunc/shadow.Model":      60,
	"papers/gillis/partition.Space":    30,
	"profiler.Profile":                 30,
	"profiler/correction.Correction":   30,
	"profiler/operator.Operator":       30,
	"provider/children.Models":         50,
	"provider.Server":                  80,
	"provider/async.Queue":             40,
	"provider/async/queue.Broker":      30,
	"provider/control.function":        70,
	"provider/control.instance":        40,
	"provider/deployments.Controller":  40,
	"provider/dispatch.Dispatcher":     60,
	"provider/forward.Forwarder":       40,
	"provider/keeper.Tasks":            40,
	"provider/latency.Finder":          50,
	"provider/metrics.FunctionMetrics": 30,
	"provider/objects.NamespaceStore":  70,
	"provider/peer.Group":              50,
	"provider/store.Store":             30,
	"scaling.pass":                     70,
	"scaling.view":                     70,
	"scaling/joint.Problem":            30,
	"scaling/packing.Problem":          60,
	"scaling/placing.Room":             30,
}

// A type is held by its methods, by those of its views, which embed a pointer to it, and by functions
// whose first parameter is such a pointer. A view or a free function hides none of them.
func TestTypesCanBeHeldWithTheirViews(t *testing.T) {
	counts := held(sources(t))
	for name, n := range counts {
		if most := max(maxFunctions, crowded[name]); n > most {
			t.Errorf("%s has %d functions with those of its views, more than %d", name, n, most)
		}
	}
	for name, most := range crowded {
		if n := counts[name]; n <= most-10 {
			t.Errorf("%s has only %d functions with those of its views: lower its number in crowded", name, n)
		}
	}
}

// held counts the functions of each type, by "folder.Type".
func held(all []source) map[string]int {
	counts, of := map[string]int{}, map[string]string{}
	var declared []func()
	for _, s := range all {
		if s.test() || within(s.folder, "lab") || within(s.folder, "e2e") {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if name, viewed := view(spec); viewed != "" {
						of[s.folder+"."+name] = s.folder + "." + viewed
					}
				}
			case *ast.FuncDecl:
				declared = append(declared, func() {
					if name := holder(d); name != "" {
						counts[whole(of, s.folder+"."+name)]++
					}
				})
			}
		}
	}
	for _, count := range declared { // Views may be declared after their methods.
		count()
	}
	return counts
}

// whole returns the type of which a type is a view, or the type itself.
func whole(of map[string]string, name string) string {
	for of[name] != "" {
		name = of[name]
	}
	return name
}

// view returns the type that a declared struct embeds, "" if it embeds no pointer and is not all of
// another view.
func view(spec ast.Spec) (name, viewed string) {
	d, ok := spec.(*ast.TypeSpec)
	if !ok {
		return "", ""
	}
	fields, ok := d.Type.(*ast.StructType)
	if !ok {
		return "", ""
	}
	for _, f := range fields.Fields.List {
		if star, ok := f.Type.(*ast.StarExpr); ok && len(f.Names) == 0 {
			if id, ok := star.X.(*ast.Ident); ok {
				return d.Name.Name, id.Name
			}
		}
		if id, ok := f.Type.(*ast.Ident); ok && len(f.Names) == 0 && len(fields.Fields.List) == 1 {
			return d.Name.Name, id.Name
		}
	}
	return "", ""
}

// holder returns the type of a method, or that of the pointer which is a function's first parameter.
func holder(f *ast.FuncDecl) string {
	if f.Recv != nil {
		return receiver(f)
	}
	if params := f.Type.Params.List; len(params) > 0 {
		if star, ok := params[0].Type.(*ast.StarExpr); ok {
			if id, ok := star.X.(*ast.Ident); ok {
				return id.Name
			}
		}
	}
	return ""
}
