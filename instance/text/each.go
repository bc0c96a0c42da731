package text

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// sharedBytes is the size in bytes of a request's texts from which on several cores read them. To read fewer takes
// less than a millisecond.
const sharedBytes = 16 << 10

// each reads texts on the cores that the instance has. read must be safe for concurrent use. Of several errors it
// returns that of the first text, and the text's position.
func each(texts []string, read func(text string) (Row, error)) (rows []Row, at int, err error) {
	e := reading{texts: texts, read: read, rows: make([]Row, len(texts))}
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	var others sync.WaitGroup
	if size >= sharedBytes {
		for range min(runtime.GOMAXPROCS(0), len(texts)) - 1 {
			others.Go(e.work)
		}
	}
	e.work()
	others.Wait()
	if e.panicked != "" { // The instance answers with an error for this request alone.
		panic(e.panicked)
	}
	if e.err != nil {
		return nil, e.at, e.err
	}
	return e.rows, 0, nil
}

// reading is the state of each.
type reading struct {
	texts []string
	read  func(text string) (Row, error)
	rows  []Row
	// next is the position of the next text that nobody reads yet.
	next atomic.Int64

	mu sync.Mutex
	// err is the error of the text at a position, the first of those that failed.
	at  int
	err error
	// panicked is what a panic said, with its stack.
	panicked string
}

// work reads texts until none is left. Positions are handed out in their order, so that the texts before one that
// fails are read to the end.
func (e *reading) work() {
	defer func() {
		if r := recover(); r != nil {
			e.fail(0, nil, fmt.Sprintf("%v\n%s", r, debug.Stack()))
		}
	}()
	for {
		i := int(e.next.Add(1)) - 1
		if i >= len(e.texts) {
			return
		}
		row, err := e.read(e.texts[i])
		if err != nil {
			e.fail(i, err, "")
			return
		}
		e.rows[i] = row
	}
}

// fail notes that a text cannot be read, and ends the work.
func (e *reading) fail(at int, err error, panicked string) {
	e.next.Store(int64(len(e.texts)))
	e.mu.Lock()
	defer e.mu.Unlock()
	if panicked != "" {
		e.panicked = panicked
	} else if e.err == nil || at < e.at {
		e.at, e.err = at, err
	}
}
