package watchdog

import (
	"fmt"
	"os"
	"sync"
)

// buffers are for copying from pipes, which hold twice as much.
var buffers = sync.Pool{New: func() any {
	buffer := make([]byte, 32<<10)
	return &buffer
}}

// pipes connect a process's standard streams.
type pipes struct {
	// Ours; stderr is nil where it goes to stdout.
	stdin, stdout, stderr *os.File
	theirs                [3]*os.File
}

func openPipes(combined bool) (p *pipes, err error) {
	p = &pipes{}
	defer func() {
		if err != nil {
			p.closeTheirs()
			p.close()
			err = fmt.Errorf("pipe to the process: %w", err)
		}
	}()
	if p.theirs[0], p.stdin, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.stdout, p.theirs[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if combined {
		p.theirs[2] = p.theirs[1]
		return p, nil
	}
	p.stderr, p.theirs[2], err = os.Pipe()
	return p, err
}

// closeTheirs closes what the process has inherited.
func (p *pipes) closeTheirs() {
	for _, file := range p.theirs {
		if file != nil {
			_ = file.Close()
		}
	}
}

func (p *pipes) close() {
	for _, file := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if file != nil {
			_ = file.Close()
		}
	}
}
