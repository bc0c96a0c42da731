package load

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress draws a bar of the elapsed part of a run; nil draws nothing.
type progress struct {
	bar  *progressbar.ProgressBar
	stop chan struct{}
	done chan struct{}
}

// newProgress returns a bar on w, or nil if w is not a terminal.
func newProgress(w io.Writer, total time.Duration) *progress {
	if !terminal(w) {
		return nil
	}
	return &progress{
		bar: progressbar.NewOptions64(total.Milliseconds(),
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription("load"),
			progressbar.OptionSetWidth(40),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		),
		stop: make(chan struct{}),
		done: make(chan struct{}),
	}
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// begin draws the time since start, until finish.
func (p *progress) begin(start time.Time) {
	if p == nil {
		return
	}
	go func() {
		defer close(p.done)
		tick := time.Tick(200 * time.Millisecond)
		for {
			select {
			case <-p.stop:
				return
			case <-tick:
				p.bar.Set64(min(time.Since(start).Milliseconds(), p.bar.GetMax64()))
			}
		}
	}()
}

// finish removes the bar. Call it after begin.
func (p *progress) finish() {
	if p == nil {
		return
	}
	close(p.stop)
	<-p.done
	p.bar.Clear()
}
