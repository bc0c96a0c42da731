package sim

import (
	"context"
	"errors"
)

// Run simulates a setup until its duration is over and what came before is
// answered, or ctx ends. A setup that cannot be simulated is an error that names
// what is wrong; so is a scheduler that gives a node more than it has.
func Run(ctx context.Context, s Setup) (*Result, error) {
	return nil, errors.New("not there yet")
}
