package watchdog

import (
	"fmt"
	"os"
)

// Pipes connect another process's standard streams with this process.
type Pipes struct {
	// Stdin, Stdout and Stderr are this process's ends. Stderr is nil if it is combined
	// with Stdout.
	Stdin          *os.File
	Stdout, Stderr *Output
	// Theirs are the other process's ends, until CloseTheirs.
	Theirs [3]*os.File
}

// openPipes opens three pipes, or two if the standard error is combined with the standard
// output.
func openPipes(combined bool) (p *Pipes, err error) {
	p = &Pipes{}
	defer func() {
		if err != nil {
			p.CloseTheirs()
			p.Close()
			err = fmt.Errorf("open a pipe to the process: %w", err)
		}
	}()
	if p.Theirs[0], p.Stdin, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.Stdout, p.Theirs[1], err = openOutput(); err != nil {
		return nil, err
	}
	if combined {
		p.Theirs[2] = p.Theirs[1]
		return p, nil
	}
	p.Stderr, p.Theirs[2], err = openOutput()
	return p, err
}

func openOutput() (*Output, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &Output{file: read}, write, nil
}

// EndOutput ends Stdout and Stderr. Call it once, when the process has ended.
func (p *Pipes) EndOutput() {
	p.Stdout.End()
	if p.Stderr != nil {
		p.Stderr.End()
	}
}

// CloseTheirs closes the ends that the other process has inherited.
func (p *Pipes) CloseTheirs() {
	for _, file := range p.Theirs {
		if file != nil {
			_ = file.Close()
		}
	}
}

// Close closes this process's ends.
func (p *Pipes) Close() {
	if p.Stdin != nil {
		_ = p.Stdin.Close()
	}
	for _, output := range []*Output{p.Stdout, p.Stderr} {
		if output != nil {
			output.close()
		}
	}
}
