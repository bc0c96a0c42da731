package python

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// steps is a run whose handler may yield: the process sends parts of answers, and goes on once they are read.
type steps struct {
	ctx     context.Context
	engine  *Engine
	process *process
	rows    []int
	// takes says which requests take their answers in parts, nil for none, and take gets the parts.
	takes []bool
	take  func(request int, part []tensor.Tensor) (more bool)
}

func (s *steps) takesParts(request int) bool { return s.takes != nil && s.takes[request] }

// takers are the positions of the requests that take parts.
func (s *steps) takers() (positions []int) {
	for i := range s.rows {
		if s.takesParts(i) {
			positions = append(positions, i)
		}
	}
	return positions
}

// next hands the parts of a step on. It returns the message that has the process go on.
func (s *steps) next(parts []answer) (goOn, error) {
	if len(parts) != len(s.rows) {
		return goOn{}, fmt.Errorf("sent %d parts for a batch of %d", len(parts), len(s.rows))
	}
	w, err := newWindow(s.process.out, parts)
	if err != nil {
		return goOn{}, err
	}
	defer w.release()
	message := goOn{Gone: []int{}}
	for i, part := range parts {
		if !s.takesParts(i) {
			continue
		}
		more := s.ctx.Err() == nil
		if more && len(part.Outputs) > 0 {
			outputs, err := s.engine.tensors(w, s.rows[i], part)
			if err != nil {
				return goOn{}, err
			}
			more = s.take(i, outputs)
		}
		if !more {
			message.Gone = append(message.Gone, i)
		}
	}
	return message, nil
}
