package report

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// ProgressBar returns a function that draws how much is done on w if it is a
// terminal, and does nothing if it is not.
func ProgressBar(w io.Writer, what string) func(done, total int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func(int, int) {}
	}
	var bar *progressbar.ProgressBar
	return func(done, total int) {
		if bar == nil {
			bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
				progressbar.OptionClearOnFinish(), progressbar.OptionShowCount())
		}
		_ = bar.Set(done)
	}
}

// Steps returns a function that prints a step and the seconds since the start.
func Steps(w io.Writer) func(step string) {
	began := time.Now()
	return func(step string) {
		fmt.Fprintf(w, "%6.1f s  %s\n", time.Since(began).Seconds(), step)
	}
}
