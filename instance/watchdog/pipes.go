package watchdog

import (
	"fmt"
	"os"
)

// Pipes connect a process's standard streams with this one.
type Pipes struct {
	// The ends of this process; Stderr is nil where it goes to Stdout.
	Stdin          *os.File
	Stdout, Stderr *Output
	// Theirs are the process's ends, until CloseTheirs.
	Theirs [3]*os.File
}

// OpenPipes opens three pipes, or two where the standard error is combined with
// the standard output.
func OpenPipes(combined bool) (p *Pipes, err error) {
	p = &Pipes{}
	defer func() {
		if err != nil {
			p.CloseTheirs()
			p.Close()
			err = fmt.Errorf("pipe to the process: %w", err)
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

// EndOutput is to be called once, when the process has ended.
func (p *Pipes) EndOutput() {
	p.Stdout.End()
	if p.Stderr != nil {
		p.Stderr.End()
	}
}

// CloseTheirs closes what the process has inherited.
func (p *Pipes) CloseTheirs() {
	for _, file := range p.Theirs {
		if file != nil {
			_ = file.Close()
		}
	}
}

// Close closes the ends of this process.
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
