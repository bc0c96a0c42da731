package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// errAbandoned: no member of the exchange needs more parts of its answer.
var errAbandoned = errors.New("no client waits for the rest of the answers")

// takesParts reports whether the call takes its answer in parts.
func (c *call) takesParts() bool { return c.request.Parts != nil }

// partition puts the calls that take their answers in parts behind the others, in an exchange of their own: the
// others need not wait until the last part has come.
func partition(calls []*call) {
	if slices.ContainsFunc(calls, (*call).takesParts) {
		slices.SortStableFunc(calls, func(a, b *call) int { return parts(a) - parts(b) })
	}
}

func parts(c *call) int {
	if c.takesParts() {
		return 1
	}
	return 0
}

// takers are the members of an exchange that get parts of their answers; an entry is nil if that member has been
// refused.
type takers struct {
	members []*call
	// patience is how long the next part may take.
	patience time.Duration
}

// take gives a member its next part.
func (t *takers) take(p frame.Part) error {
	if p.Member >= len(t.members) {
		return fmt.Errorf("the instance sent a part for member %d of %d", p.Member, len(t.members))
	}
	c := t.members[p.Member]
	if c == nil {
		return nil
	}
	if !c.takesParts() {
		return fmt.Errorf("the instance sent a part for member %d, which takes none", p.Member)
	}
	if c.begun.IsZero() {
		c.begun = time.Now()
	}
	_ = c.request.Parts(p.Body) // An error ends the call's context; its neighbours go on.
	return nil
}

// watch calls abandon when the contexts of all members have ended. stop ends that. If all members have been refused
// the exchange goes on: their instance is slower than predicted, and only an execution's end corrects that.
func (t *takers) watch(abandon func()) (stop func()) {
	var left atomic.Int64
	var stops []func() bool
	members := slices.DeleteFunc(slices.Clone(t.members), func(c *call) bool { return c == nil })
	left.Store(int64(len(members)))
	for _, c := range members {
		stops = append(stops, context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				abandon()
			}
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// readParts hands the parts of the answers on as they come. It returns the frame with the end of the answers, and the
// rest of the head. The instance is lost if it sends nothing for long.
func (x *exchange) readParts(t *takers) (end io.Reader, answer head, err error) {
	if t == nil {
		return nil, head{}, errors.New("the instance sent parts, and no member takes any")
	}
	var abandoned atomic.Bool
	defer t.watch(func() {
		abandoned.Store(true)
		x.Close()
	})()
	for {
		x.connection.end = time.Now().Add(t.patience)
		part, err := frame.ReadPart(x.reader, maxReply)
		switch {
		case err != nil && abandoned.Load():
			return nil, head{}, errAbandoned
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, head{}, fmt.Errorf("no part of an answer within %v", t.patience)
		case err != nil:
			return nil, head{}, err
		case part.Member >= 0:
			if err := t.take(part); err != nil {
				return nil, head{}, err
			}
			continue
		}
		for name, values := range part.Header {
			if err := answer.set([]byte(name), []byte(values[0])); err != nil {
				return nil, head{}, err
			}
		}
		answer.length, answer.last = int64(len(part.Body)), true
		return bytes.NewReader(part.Body), answer, nil
	}
}
