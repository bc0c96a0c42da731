package provider

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/rollout"
	"github.com/faas-infer/faas-infer/provider/web"
)

// CandidateSuffix ends the name of the function that runs a candidate: a later revision that gets a share of its
// function's requests. Users cannot deploy such a name.
const CandidateSuffix = "--next"

// canaryHeader is the header of a request that chooses a side of a rollout: "always" is the candidate, "never" the
// present revision.
const canaryHeader = "X-Infer-Canary"

const (
	// maxCopies bounds the copies of requests that candidates answer at a time for one function, and maxCopied the
	// bytes of their bodies and of the answers that theirs are compared with. Requests beyond are not copied. Those that
	// candidates are to answer are copied, too; the present revision answers those beyond.
	maxCopies = 16
	maxCopied = 16 << 20
	// comparedBytes is the size of the largest answer that is compared.
	comparedBytes = 1 << 20
	// copyTimeout bounds the time of a copy.
	copyTimeout = 30 * time.Second
	// unproven is the number of clients' requests from which on a candidate gets any number at a time. Before, it gets
	// one, and one more for every sixteen that it has answered. So a candidate that stalls early harms few.
	unproven = 400
	// stride times a counter, modulo 2^64, spreads the chosen requests evenly, with no short period that a client may
	// have, too: it is 2^64 over the golden ratio.
	stride = 0x9E3779B97F4A7C15
)

// split divides the requests of a function between its present revision and a candidate, and counts both sides. It
// takes no lock.
type split struct {
	// candidate is the function that runs the candidate.
	candidate atomic.Pointer[deployed]
	// share and mirror are parts of 2^64.
	share, mirror atomic.Uint64
	// ready: the candidate has an instance that can answer. proving: it gets one request at a time.
	ready, proving atomic.Bool
	// arrived and mirrored count requests, for share and mirror.
	arrived, mirrored atomic.Uint64
	// outstanding are the requests of clients that the candidate has, and served those that it had. copies are the
	// copies that it has, and copied is their bytes.
	outstanding, served, copies, copied atomic.Int64
	present, next                       sideCounts
	// copiedAt is when the latest copy began, or was last counted as late, in ns since 1970; math.MaxInt64 once its
	// first part has come.
	copiedAt            atomic.Int64
	compared, different atomic.Uint64
}

// sideCounts is a [rollout.Side] that requests count.
type sideCounts struct{ answered, missed, failed atomic.Uint64 }

// count counts a request with a status code, and whether it missed its objective.
func (c *sideCounts) count(code int, late bool) {
	if code == web.StatusHungUp {
		return
	}
	// A request that was refused for lack of time or room missed its objective, and nothing is wrong with its answer.
	refused := code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests
	failed := code >= http.StatusBadRequest && !refused
	if failed {
		c.failed.Add(1)
	}
	if failed || refused || late {
		c.missed.Add(1)
	}
	c.answered.Add(1)
}

// side returns the counts. Answered is read last, so it is never the smallest.
func (c *sideCounts) side() rollout.Side {
	s := rollout.Side{Failed: c.failed.Load()}
	s.Missed = c.missed.Load()
	s.Answered = c.answered.Load()
	return s
}

// tally returns what was counted. Of different and compared, and so on, what cannot be larger is read first.
func (x *split) tally() RolloutTally {
	t := RolloutTally{Different: x.different.Load()}
	t.Compared = x.compared.Load()
	t.Candidate, t.Present, t.Served = x.next.side(), x.present.side(), x.served.Load()
	return t
}

// apply sets the shares of a state.
func (x *split) apply(s rollout.State, p rollout.Plan, ready bool) {
	x.ready.Store(ready)
	x.proving.Store(s.Phase == rollout.Proving)
	x.share.Store(threshold(s.Share(p)))
	mirror := uint64(0)
	if s.Phase == rollout.Proving || s.Phase == rollout.Sharing {
		mirror = threshold(p.Mirror)
	}
	x.mirror.Store(mirror)
}

// threshold is a percentage as a part of 2^64.
func threshold(percent int) uint64 {
	if percent >= 100 {
		return math.MaxUint64
	}
	return math.MaxUint64 / 100 * uint64(percent)
}

// enter chooses the candidate for a request, and counts it as outstanding until leave. It returns nil for the present
// revision. copies: the candidate proves itself with copies of requests, not with requests.
func (x *split) enter(h http.Header, copies bool) *deployed {
	d := x.candidate.Load()
	if d == nil || !x.ready.Load() {
		return nil
	}
	chosen := false
	switch asked := h.Get(canaryHeader); {
	case asked == "always":
		chosen = true
	case asked == "never":
	case x.proving.Load():
		chosen = !copies
	default:
		chosen = x.arrived.Add(1)*stride < x.share.Load()
	}
	if !chosen {
		return nil
	}
	limit := int64(math.MaxInt64)
	if n := x.served.Load(); x.proving.Load() && !copies {
		limit = 1
	} else if n < unproven {
		limit = 1 + n/16
	}
	if x.outstanding.Add(1) > limit {
		x.outstanding.Add(-1)
		return nil
	}
	return d
}

func (x *split) leave() {
	x.served.Add(1)
	x.outstanding.Add(-1)
}

// invoke answers a request for a model's function with one of the revisions. A request that the candidate fails to
// answer well is answered by the present one.
func (d *deployed) invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	x := d.rollout.Load()
	if x == nil {
		return d.dispatcher.Invoke(ctx, req)
	}
	var tried time.Time
	objective := cmp.Or(req.Objective, d.Inference.SLO)
	if next := x.enter(req.Header, true); next != nil {
		tried = time.Now()
		resp, err := x.tryCandidate(ctx, next, req, objective)
		if resp != nil || err != nil {
			// The present revision keeps its capacity: it has the whole load again when the candidate is removed, and hands
			// it on to its successor when that takes over.
			if present, ok := d.dispatcher.(LoadDispatcher); ok {
				present.CountElsewhere()
			}
			return resp, err
		}
	}
	replay := x.copyOf(req)
	var first firstPart
	resp, err := d.dispatcher.Invoke(ctx, first.of(req))
	code, late := outcome(resp, err)
	x.present.count(code, late)
	if replay != nil {
		x.mirrorTo(replay, resp)
	}
	if resp != nil && !tried.IsZero() && first.orNow().Sub(tried) > objective {
		resp.Late = true // For the client it is, also if the present revision was quick.
	}
	return resp, err
}

// firstPart notes when the first part of an answer comes. Once refused, it takes none.
type firstPart struct {
	// ns is when it came, in ns since 1970; 0 before, and refusing.
	ns atomic.Int64
}

// refusing is firstPart.ns once the first part is not taken.
const refusing = -1

// errRefusing is the error of a part that comes too late to be taken.
var errRefusing = errors.New("another revision answers the request")

// of returns the request whose parts are noted: req itself if it takes none.
func (f *firstPart) of(req *frame.Request) *frame.Request {
	if req.Parts == nil {
		return req
	}
	noted := *req
	noted.Parts = func(part []byte) error {
		f.ns.CompareAndSwap(0, time.Now().UnixNano())
		if f.ns.Load() == refusing {
			return errRefusing
		}
		return req.Parts(part)
	}
	return &noted
}

// refuse takes no part from here. It reports false if one has come.
func (f *firstPart) refuse() bool { return f.ns.CompareAndSwap(0, refusing) || f.ns.Load() == refusing }

// orNow is when the first part came, the time now if none has.
func (f *firstPart) orNow() time.Time {
	if ns := f.ns.Load(); ns > 0 {
		return time.Unix(0, ns)
	}
	return time.Now()
}

// tryCandidate lets the candidate answer a request. It returns nothing if the present revision must answer it: also if the
// candidate has not within the objective, for instance because it has just lost its last instance.
func (x *split) tryCandidate(ctx context.Context, next *deployed, req *frame.Request, objective time.Duration) (*frame.Response, error) {
	size := int64(len(req.Body))
	defer x.copied.Add(-size)
	if n := x.copied.Add(size); n > maxCopied && n > size {
		x.outstanding.Add(-1)
		return nil, nil
	}
	defer x.leave()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	var first firstPart
	once := next.Inference.Once || req.Once
	if objective > 0 && !once {
		defer time.AfterFunc(objective, func() {
			if first.refuse() {
				cancel()
			}
		}).Stop()
	}
	// The candidate gets a copy: an instance that is lost may still be reading it when the present revision answers.
	resp, err := next.dispatcher.Invoke(try, cloned(first.of(req)))
	begun := !first.refuse()
	if ctx.Err() != nil {
		if resp == nil && err == nil {
			err = ctx.Err()
		}
		return resp, err
	}
	code, late := outcome(resp, err)
	if err != nil && try.Err() != nil {
		code = http.StatusServiceUnavailable // It missed the objective, and nothing is known of its answer.
	}
	x.next.count(code, late)
	if err == nil && code < http.StatusInternalServerError {
		return resp, nil
	}
	ran := err == nil || code != http.StatusServiceUnavailable && code != http.StatusTooManyRequests
	if begun || ran && once { // The client may have parts of the answer.
		if resp == nil {
			resp, err = nil, web.Refuse(code, "%v", err)
		}
		return resp, err
	}
	return nil, nil
}

// outcome is the status code of an answer or error, and whether it was late.
func outcome(resp *frame.Response, err error) (code int, late bool) {
	if err != nil {
		return web.StatusOf(err), false
	}
	return resp.Status, resp.Late
}

// cloned returns a copy of a request that shares nothing with it which a dispatcher changes or keeps.
func cloned(req *frame.Request) *frame.Request {
	c := *req
	c.Header, c.Body = req.Header.Clone(), bytes.Clone(req.Body)
	return &c
}

// copyOf returns a copy of a request for the candidate, nil if it gets none. [split.mirrorTo] ends it.
func (x *split) copyOf(req *frame.Request) *frame.Request {
	next := x.candidate.Load()
	if next == nil || !x.ready.Load() || next.Inference.Once || req.Once {
		return nil
	}
	limit := int64(maxCopies)
	mirrored := x.mirror.Load() > 0 && x.mirrored.Add(1)*stride < x.mirror.Load()
	if x.proving.Load() {
		mirrored, limit = true, 1
	}
	if !mirrored {
		return nil
	}
	now := time.Now().UnixNano()
	if begun := x.copiedAt.Load(); x.proving.Load() && x.copies.Load() > 0 && next.Inference.SLO > 0 && now-begun > int64(next.Inference.SLO) {
		// The copy that it has is late, so this one would be, too: else a candidate that stalls would be seen only
		// between its stalls. One for each objective counts, as a candidate that does not stall answers no more.
		if x.copiedAt.CompareAndSwap(begun, now) {
			x.next.count(http.StatusServiceUnavailable, true)
		}
		return nil
	}
	size := int64(len(req.Body))
	if x.copies.Add(1) > limit || x.copied.Add(size) > maxCopied {
		x.endCopy(size)
		return nil
	}
	x.copiedAt.Store(now)
	c := cloned(req)
	c.Sink, c.Trace = nil, nil
	if req.Parts != nil { // Nobody reads them, but the first one may be late.
		c.Parts = func([]byte) error {
			x.copiedAt.Store(math.MaxInt64)
			return nil
		}
	}
	return c
}

func (x *split) endCopy(size int64) {
	x.copies.Add(-1)
	x.copied.Add(-size)
}

// mirrorTo lets the candidate answer a copy in the background, and compares its answer with that of the present
// revision, of which it keeps nothing.
func (x *split) mirrorTo(replay *frame.Request, answer *frame.Response) {
	size := int64(len(replay.Body))
	next := x.candidate.Load()
	if next == nil {
		x.endCopy(size)
		return
	}
	var want rollout.Answer
	compares := x.mirror.Load() > 0 && replay.Parts == nil && answer != nil && answer.Status < http.StatusBadRequest && len(answer.Body) <= comparedBytes
	if compares {
		x.copied.Add(int64(len(answer.Body)))
		size += int64(len(answer.Body))
		want = comparedOf(answer)
		want.Body = bytes.Clone(want.Body)
	}
	go func() {
		defer x.endCopy(size)
		ctx, cancel := context.WithTimeout(context.Background(), copyTimeout)
		defer cancel()
		resp, err := next.dispatcher.Invoke(ctx, replay)
		code, late := outcome(resp, err)
		x.next.count(code, late)
		if !compares || err != nil || code >= http.StatusInternalServerError || len(resp.Body) > comparedBytes {
			return
		}
		if !rollout.Alike(want, comparedOf(resp)) {
			x.different.Add(1)
		}
		x.compared.Add(1)
	}()
}

// comparedOf is what is compared of an answer.
func comparedOf(r *frame.Response) rollout.Answer {
	head, _ := strconv.Atoi(r.Header.Get("Inference-Header-Content-Length")) // 0: none.
	return rollout.Answer{Status: r.Status, Type: r.Header.Get("Content-Type"), Head: head, Body: r.Body}
}

// forwardSplit lets an ordinary function's forwarder answer one request with one of the revisions. Bodies stream, so the
// present revision does not answer what the candidate failed to answer.
func (d *deployed) forwardSplit(w http.ResponseWriter, r *http.Request, path string, waited time.Duration, keep func(n int64) error) (code int) {
	x := d.rollout.Load()
	if x == nil {
		return d.forwarder.Forward(w, r, path, waited, keep)
	}
	to, counts := d.forwarder, &x.present
	if next := x.enter(r.Header, false); next != nil {
		defer x.leave()
		if next.forwarder != nil {
			to, counts = next.forwarder, &x.next
		}
	}
	defer func() {
		p := recover()
		if p != nil {
			code = statusBrokenOff(r)
		}
		if counts.count(code, false); p != nil {
			panic(p)
		}
	}()
	return to.Forward(w, r, path, waited, keep)
}
