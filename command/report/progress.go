package report

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// ProgressBar returns a function that draws how much is done on w if it is a
// terminal that can move its cursor, and does nothing if it is not.
func ProgressBar(w io.Writer, what string) func(done, total int) {
	if !Interactive(w) {
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
