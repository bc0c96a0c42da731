package dividing

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// ReadBlocks reads what "profile layers" prints. A reason that may pass is no [shadow.UndividedError], so it is not
// stored.
func ReadBlocks(text []byte) (*shadow.Model, error) {
	var found struct {
		Model     *shadow.Model `json:"model"`
		Undivided string        `json:"undivided"`
		Passing   bool          `json:"passing"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("read the layer profile: %w", err)
	}
	if found.Passing {
		return nil, errors.New(found.Undivided)
	}
	if found.Model == nil || len(found.Model.Blocks) < 2 {
		return nil, &shadow.UndividedError{Why: found.Undivided}
	}
	return found.Model, nil
}
