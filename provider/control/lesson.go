package control

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
)

// This file learns the sizes of a model's free dimensions from a request, where the model runs with none that
// were guessed and the deployment states none.

const (
	// lessonTime bounds one try. The pause after one that failed is lessonPause, or lessonRest times as
	// long as it took: clients of such a function cost at most a fifth of the time of one child process.
	lessonTime  = time.Minute
	lessonPause = time.Second
	lessonRest  = 4
)

// lesson tries the sizes of requests, one after the other, until some run.
type lesson struct {
	// try tries a request's sizes and keeps them if they run. Its error is the answer to the request.
	try func(ctx context.Context, r *frame.Request) error
	// begin begins work in the background, with a context that ends with the controller. coldWait is how
	// long requests wait. beside: an earlier revision serves, so they do not wait.
	begin    func(func(ctx context.Context))
	coldWait time.Duration
	beside   bool

	mu sync.Mutex
	// now is the try that runs, nil if none does. The next one may begin at next. over: sizes are known.
	now  *lessonTry
	next time.Time
	over bool
}

// lessonTry is one try; err is valid once done is closed.
type lessonTry struct {
	done chan struct{}
	err  error
}

// attend returns nil once the sizes are known. Otherwise its error is the answer to the request: why its
// sizes do not run, or that others are being tried. The time that it takes is a part of the request's.
func (l *lesson) attend(ctx context.Context, r *frame.Request) error {
	if r.Method != http.MethodPost {
		return web.Unavailable(lessonPause, "the sizes of the model's inputs are not known yet; the first inference request teaches them")
	}
	began := time.Now()
	patience := time.After(l.coldWait)
	for {
		running, mine, pause := l.turn(began, r)
		switch {
		case running == nil && pause > 0:
			return web.Unavailable(pause, "the sizes of the model's inputs are not known yet, and those of an earlier request did not run; send the request again")
		case running == nil || l.beside:
			r.Waited += time.Since(began)
			return nil
		}
		select {
		case <-running.done:
			if mine && running.err != nil {
				return running.err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-patience:
			return web.Unavailable(lessonPause, "the sizes of the model's inputs are not known yet, and those of a request are being tried; send the request again")
		}
	}
}

// turn returns the try that runs, which it begins with the request if none runs and one may: then it is
// mine. Without any the sizes are known, or pause is the time until the next one.
func (l *lesson) turn(now time.Time, r *frame.Request) (running *lessonTry, mine bool, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.now != nil {
		return l.now, false, 0
	}
	if pause = l.next.Sub(now); pause > 0 && !l.beside {
		return nil, false, pause
	} else if pause > 0 {
		return nil, false, 0
	}
	t, own := &lessonTry{done: make(chan struct{})}, *r
	own.Body = slices.Clone(r.Body) // The caller may use it for another request before the try ends.
	l.now = t
	l.begin(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, lessonTime)
		defer cancel()
		began := time.Now()
		l.end(t, l.try(ctx, &own), began)
	})
	return t, true, 0
}

// end ends a try.
func (l *lesson) end(t *lessonTry, err error, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var answer *web.Error
	if err != nil && !errors.As(err, &answer) {
		err = web.Unavailable(lessonPause, "the sizes of the request could not be tried: %v", err)
	}
	now := time.Now()
	l.now, l.next, l.over = nil, now.Add(max(lessonPause, lessonRest*now.Sub(began))), l.over || err == nil
	t.err = err
	close(t.done)
}

// learns reports whether a function's sizes may be learnt: none are stated, and none are learnt yet.
func learns(f *provider.Function) bool { return latency.SizesOf(f).Shapes == "" }

// openLesson makes the function's requests teach the sizes of a model of the revision, which runs with none
// that were tried. The lock is held.
func (c preparation) openLesson(file, why string) *lesson {
	fn := c.fn
	l := &lesson{coldWait: c.coldWait, beside: fn.measured()}
	l.begin = func(work func(ctx context.Context)) { c.keeper.Begin(func() { work(c.keeper.Context()) }) }
	l.try = func(ctx context.Context, r *frame.Request) error {
		shapes, err := c.finder.Learn(ctx, c.Function, file, r)
		if err != nil {
			fn.log.Info().Err(err).Msg("the sizes of a request were not learnt")
			return err
		}
		fn.log.Info().Str("shapes", shapes).Msg("a request has taught the sizes of the model's inputs")
		fn.decisions.Add(time.Now(), fn.Name, decisions.Learn, decisions.Fields{Detail: shapes})
		c.taught(l)
		return nil
	}
	fn.classing.classifier.lesson.Store(l)
	c.refuse(fn, "the sizes of the model's inputs are learnt from its first request: "+why)
	return l
}

// attendLesson waits until a request has taught the sizes at another replica.
func (c preparation) attendLesson(ctx context.Context, file string, l *lesson) {
	for backoff.Wait(ctx, followPause) {
		if latency.Learnt(c.finder, file) != "" {
			c.taught(l)
			return
		}
	}
}

// taught ends a lesson whose sizes are known, and prepares the revision again with them.
func (c preparation) taught(l *lesson) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.mu.Lock()
	first := !l.over
	l.over = true
	l.mu.Unlock()
	if c.fn.classing.classifier.lesson.CompareAndSwap(l, nil) && first && c.fn.wanted == c.Function {
		c.fn.failed = ""
		c.fn.tell(time.Now())
		c.fn.again()
	}
}

// knowing returns a function with what a request has taught of its models, if its deployment states no sizes.
func knowing(finder *latency.Finder, f *provider.Function, models []Model) *provider.Function {
	if !learns(f) {
		return f
	}
	for _, m := range models {
		if shapes := latency.Learnt(finder, m.File); shapes != "" {
			same := *f
			same.Learnt = shapes
			return &same
		}
	}
	return f
}
