package main_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/e2e/guide"
)

// bounding lists the folders whose constants that begin with max must all be in the table of
// bounds: what clients, functions and other replicas send comes through them.
var bounding = []string{"provider", "provider/web", "provider/async", "provider/async/queue", "provider/async/stan", "provider/build", "provider/decisions", "provider/trace",
	"provider/forward", "provider/grpc", "instance/watchdog", "instance/duplex"}

// bound matches the name of a constant that is a bound, limiting the flag of one.
var (
	bound    = regexp.MustCompile(`^(DefaultM|M|m)ax[A-Z]`)
	limiting = regexp.MustCompile(`^max-|-(limit|timeout|concurrency|wait)$|^drain$`)
)

// quantity matches the number that a cell begins with, and its unit.
var quantity = regexp.MustCompile(`^([0-9,]+)(?: (KiB|MiB|GiB|s|min|h))?$`)

var units = map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	"s": int64(time.Second), "min": int64(time.Minute), "h": int64(time.Hour)}

// quantityOf reads a cell such as "64 KiB"; false if it is none.
func quantityOf(cell string) (int64, bool) {
	m := quantity.FindStringSubmatch(cell)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
	return n * units[m[2]], err == nil
}

// constants returns the expressions of a folder's constants by name.
func constants(all []source) map[string]map[string]ast.Expr {
	found := map[string]map[string]ast.Expr{}
	for _, s := range all {
		if s.test() {
			continue
		}
		for _, decl := range s.file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				values := spec.(*ast.ValueSpec)
				for i, value := range values.Values {
					if found[s.folder] == nil {
						found[s.folder] = map[string]ast.Expr{}
					}
					found[s.folder][values.Names[i].Name] = value
				}
			}
		}
	}
	return found
}

// evaluate computes a constant of a folder: integers, times, and other constants of it.
func evaluate(all map[string]map[string]ast.Expr, folder string, e ast.Expr) (int64, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseInt(strings.ReplaceAll(e.Value, "_", ""), 0, 64)
	case *ast.ParenExpr:
		return evaluate(all, folder, e.X)
	case *ast.Ident:
		if value := all[folder][e.Name]; value != nil {
			return evaluate(all, folder, value)
		}
	case *ast.SelectorExpr:
		of := fmt.Sprint(e.X)
		if unit, ok := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]; ok && of == "time" {
			return int64(unit), nil
		}
		for other := range all { // The packages of the bounds have names of their own.
			if value := all[other][e.Sel.Name]; path.Base(other) == of && value != nil {
				return evaluate(all, other, value)
			}
		}
	case *ast.BinaryExpr:
		a, err := evaluate(all, folder, e.X)
		if err != nil {
			return 0, err
		}
		b, err := evaluate(all, folder, e.Y)
		switch e.Op {
		case token.SHL:
			return a << b, err
		case token.MUL:
			return a * b, err
		case token.ADD:
			return a + b, err
		}
	}
	return 0, fmt.Errorf("%T cannot be computed", e)
}

// The table of bounds has the values of the code, and every bound of the folders through which
// strangers' bytes come, and every flag of one.
func TestTableOfBounds(t *testing.T) {
	all, shown, flags := constants(sources(t)), map[string]bool{}, map[string]bool{}
	c, _ := guide.Subcommand(command.NewRootCommand(), []string{"provider"})
	for _, cells := range tableRows(t, document(t, "docs/design/limits.md"), "bound") {
		if len(cells) != 7 {
			t.Fatalf("%q has %d cells", cells, len(cells))
		}
		what, value, by, at := cells[0], cells[2], cells[4], guide.Spans(cells[6])
		want, exact := quantityOf(value)
		for _, name := range guide.Spans(by) {
			name = strings.TrimPrefix(name, "--")
			flags[name] = true
			if strings.HasPrefix(name, "com.openfaas.") {
				continue // Annotations have tables of their own.
			}
			flag := c.Flag(name)
			if flag == nil {
				t.Errorf("%s: there is no flag --%s", what, name)
				continue
			}
			n, err := strconv.ParseInt(flag.DefValue, 10, 64)
			if d, durErr := time.ParseDuration(flag.DefValue); durErr == nil && err != nil {
				n = int64(d)
			}
			if n != 0 && exact && n != want {
				t.Errorf("%s: the table says %s, --%s is %s by default", what, value, name, flag.DefValue)
			}
		}
		for _, full := range at {
			shown[full] = true
			dot := strings.LastIndexByte(full, '.')
			expr := all[full[:max(dot, 0)]][full[dot+1:]]
			if expr == nil {
				t.Errorf("%s: there is no constant %s", what, full)
				continue
			}
			got, err := evaluate(all, full[:dot], expr)
			if err != nil {
				t.Errorf("%s: %s: %v", what, full, err)
			}
			// A bound that depends on others has the constant as its largest value.
			if last := value[strings.LastIndex(value, " ")+1:]; exact && got != want || !exact && !strings.HasSuffix(human(got), last) {
				t.Errorf("%s: the table says %s, %s is %s", what, value, full, human(got))
			}
		}
	}
	for _, folder := range bounding {
		for name, value := range all[folder] {
			if text, ok := value.(*ast.BasicLit); ok && text.Kind == token.STRING {
				continue
			}
			if full := folder + "." + name; bound.MatchString(name) && !shown[full] {
				t.Errorf("docs/design/limits.md lacks %s", full)
			}
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if limiting.MatchString(f.Name) && !flags[f.Name] {
			t.Errorf("docs/design/limits.md lacks --%s", f.Name)
		}
	})
}

// human writes a size as the table does.
func human(n int64) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if n%units[unit] == 0 {
			return fmt.Sprintf("%d %s", n/units[unit], unit)
		}
	}
	return fmt.Sprint(n)
}

// The values of the table are read as they are meant.
func TestQuantities(t *testing.T) {
	for cell, want := range map[string]int64{"64 KiB": 65536, "16,384": 16384, "3 min": int64(3 * time.Minute), "1 GiB": 1 << 30, "24 h": int64(24 * time.Hour)} {
		if got, ok := quantityOf(cell); got != want || !ok {
			t.Errorf("%q is %d, want %d", cell, got, want)
		}
	}
}
