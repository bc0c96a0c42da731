package web

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// machinePath matches an absolute path of this machine, at least one step below a directory that the root has,
// and what stands before it. A path of a URL, such as /function/x, does not match.
var machinePath = sync.OnceValue(func() *regexp.Regexp {
	entries, _ := os.ReadDir("/") // Without the list no path is known.
	names := []string{"tmp"}
	for _, e := range entries {
		names = append(names, regexp.QuoteMeta(e.Name()))
	}
	return regexp.MustCompile(`(^|[^\w./-])/(?:` + strings.Join(names, "|") + `)(?:/[^\s"'` + "`" + `:;,()\[\]{}<>|/]+)+`)
})

// Conceal shortens each absolute path of this machine in a sentence to its last element, as in "…/model.onnx". The
// clients of functions are not to see where the provider keeps its files.
func Conceal(text string) string {
	if !strings.Contains(text, "/") {
		return text
	}
	return machinePath().ReplaceAllStringFunc(text, func(found string) string {
		before := found[:strings.Index(found, "/")]
		return before + "…" + found[strings.LastIndex(found, "/"):]
	})
}

// ConcealBelow is [Conceal] for a sentence about files below directories: it names those relative to their
// directory, which it leaves out. Relative directories count as none.
func ConcealBelow(text string, dirs ...string) string {
	for _, dir := range dirs {
		if filepath.IsAbs(dir) {
			text = strings.ReplaceAll(text, strings.TrimRight(dir, "/")+"/", "")
		}
	}
	return Conceal(text)
}
