//go:build !nopapers

package command

// The papers beside the core, one a line. Each registers what it adds when it is initialised; without
// its line and its folder the program has everything but that. With the build tag nopapers there are none.
import (
	_ "github.com/faas-infer/faas-infer/papers/asyfunc" // shadows
	_ "github.com/faas-infer/faas-infer/papers/batch"   // the policy batch
	_ "github.com/faas-infer/faas-infer/papers/gillis"  // models that are cut over several instances
	_ "github.com/faas-infer/faas-infer/papers/infaas"  // variants of models
)
