package variants

import (
	"bytes"
	"embed"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/variant"
)

//go:embed *.csv
var files embed.FS

// names lists the built-in tables.
var names = []string{"infaas-table2", "infaas-fig6", "infaas-fig6-table2"}

// Tables lists the built-in tables.
func Tables() []string { return slices.Clone(names) }

// Table returns a built-in table.
func Table(name string) ([]variant.Placed, error) {
	text, err := files.ReadFile(name + ".csv")
	if err != nil {
		return nil, fmt.Errorf("there is no table %q: it is one of %v", name, Tables())
	}
	return variant.ReadVariants(bytes.NewReader(text))
}
